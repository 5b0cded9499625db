//! The `#[kernel]` attribute of `cuda_std`.

use proc_macro::TokenStream;
use quote::quote;
use syn::{ItemFn, ReturnType, parse_macro_input, spanned::Spanned};

/// Makes a function a GPU kernel.
///
/// For `nvptx64` the function gets the kernel calling convention and its own name as the PTX entry;
/// on any other target it stays an ordinary function, which the emulator of `cuda_std` can run.
/// The function is `pub unsafe`, not generic, and returns nothing.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    match check(arguments, &function) {
        Ok(()) => expand(&function).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

fn check(arguments: TokenStream, function: &ItemFn) -> syn::Result<()> {
    let signature = &function.sig;
    let fail = |span: proc_macro2::Span, what: &str| Err(syn::Error::new(span, what));
    if !arguments.is_empty() {
        return fail(signature.span(), "`#[kernel]` takes no arguments");
    }
    if signature.unsafety.is_none() {
        return fail(
            signature.span(),
            "a kernel is `unsafe`: its caller vouches for the pointers and the launch shape",
        );
    }
    if !signature.generics.params.is_empty() {
        return fail(
            signature.generics.span(),
            "a kernel is not generic: each instance has a name of its own in the PTX",
        );
    }
    if signature.abi.is_some() || signature.asyncness.is_some() || signature.constness.is_some() {
        return fail(
            signature.span(),
            "a kernel is a plain function: no `extern`, `async` or `const`",
        );
    }
    if !matches!(signature.output, ReturnType::Default) {
        return fail(signature.output.span(), "a kernel returns nothing");
    }
    Ok(())
}

fn expand(function: &ItemFn) -> proc_macro2::TokenStream {
    let ItemFn {
        attrs,
        vis,
        sig,
        block,
    } = function;
    let name = &sig.ident;
    let inputs = &sig.inputs;
    quote! {
        #(#attrs)*
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(no_mangle)]
        #vis unsafe extern "ptx-kernel" fn #name(#inputs) #block

        #(#attrs)*
        #[cfg(not(target_arch = "nvptx64"))]
        #vis unsafe fn #name(#inputs) #block
    }
}
