"""ptxscan as a peer of the harness, for its option --extra; README.md says how to run it.

The harness runs this file in its own namespace, in each of its processes: `peer`, `DEV`, `sync` and, in the processes that use it,
`torch` are the harness's, and what is defined here has names of its own.
"""
import ctypes
import functools
import math
import os

# What the harness calls operations and elements, and what ptxscan does.
PTXSCAN_OPERATIONS = {"R": b"reverse_cumsum", "A": b"affine_scan", "T": b"affine_scan", "G": b"affine_scan_backward"}
PTXSCAN_ELEMENTS = {"f32": b"float32", "bf16": b"bfloat16"}


@functools.cache
def ptxscan_library():
    """The shared library of this package: PTXSCAN_PEERS_LIBRARY, or what a release build of the workspace has made."""
    path = os.environ.get("PTXSCAN_PEERS_LIBRARY")
    if not path:
        here = os.path.dirname(os.environ["PEERS_EXTRA"])  # the harness's __file__ is its own
        path = os.path.join(here, "..", "..", "target", "release", "libptxscan_peers.so")
    library = ctypes.CDLL(os.path.abspath(path))
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    library.ptxscan_prepare.argtypes = [ctypes.c_char_p, ctypes.c_char_p, size, size, size, size]
    library.ptxscan_prepare.restype = pointer
    library.ptxscan_run.argtypes = [pointer, pointer, size, pointer]
    library.ptxscan_run.restype = ctypes.c_int
    library.ptxscan_destroy.argtypes = [pointer]
    library.ptxscan_destroy.restype = None
    library.ptxscan_last_error.argtypes = []
    library.ptxscan_last_error.restype = ctypes.c_char_p
    return library


@peer("ptxscan", "ptxscan", lambda w: DEV == "cuda")
def p_ptxscan(ctx):
    library = ptxscan_library()

    def failure():
        return RuntimeError(library.ptxscan_last_error().decode())

    operation, element = PTXSCAN_OPERATIONS[ctx.wl.kind], PTXSCAN_ELEMENTS[ctx.wl.dt]
    shape, dim = ctx.wl.shape, ctx.wl.dim
    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim + 1:])
    device = torch.cuda.current_device()
    scan = library.ptxscan_prepare(operation, element, outer, shape[dim], inner, device)
    if not scan:
        raise failure()
    # x, y; or a, b, h; or a, h, dh, da, db: another set in each call.
    sets = [[t.data_ptr() for t in inputs + outputs] for inputs, outputs in zip(ctx.inp, ctx.out)]
    sets = [(ctypes.c_uint64 * len(addresses))(*addresses) for addresses in sets]

    def fn(i):
        if library.ptxscan_run(scan, sets[i], len(sets[i]), torch.cuda.current_stream().cuda_stream):
            raise failure()
        return ctx.out[i]

    def fini():
        sync()
        library.ptxscan_destroy(scan)
    return {"fn": fn, "fini": fini}
