//! The program, run on real .npy files: what it writes, what it says and how it ends.

use ptxscan::half;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A folder to run the program in.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path().join(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap()
    }

    /// The names of all files, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ptxscan"));
        command
            .args(arguments.split_whitespace())
            .current_dir(self.path());
        command
    }

    fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the program, which says nothing and succeeds.
    fn succeed(&self, arguments: &str) {
        let output = self.run(arguments);
        assert_eq!(text(&output.stderr), "", "{arguments}");
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        assert_eq!(text(&output.stdout), "", "{arguments}");
    }

    /// Runs the program, which fails with `message` on a line, and changes nothing in the folder.
    fn fail(&self, arguments: &str, message: &str) {
        let before: Vec<_> = self.snapshot();
        let output = self.run(arguments);
        assert_eq!(
            text(&output.stderr),
            format!("ptxscan: {message}\n"),
            "{arguments}"
        );
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert_eq!(text(&output.stdout), "", "{arguments}");
        assert_eq!(self.snapshot(), before, "{arguments}");
    }

    /// What every file has in it.
    fn snapshot(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let content = |name: String| (fs::read(self.path().join(&name)).ok(), name);
        self.names()
            .into_iter()
            .map(content)
            .map(|(bytes, name)| (name, bytes))
            .collect()
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// What numpy 2.4 writes for `[[1, 2, 3], [4, 5, 6]]`.
const BY_NUMPY: &[u8] =
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\
    \x20                                                         \n\
    \0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@\0\0\xc0@";

/// A file of format 1.0 as numpy writes it, for a shape that is written `shape`.
fn npy(shape: &str, data: &[f32]) -> Vec<u8> {
    let extent = shape.trim_matches(['(', ')']).split(',').next().unwrap();
    let room = if extent.is_empty() {
        0
    } else {
        21 - extent.len()
    };
    let dict = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}{:room$}",
        ""
    );
    let length = (10 + dict.len() + 1 + 64) / 64 * 64 - 10;
    let header = format!("{dict:<width$}\n", width = length - 1);
    with_header((1, 0), &header, data)
}

/// A file with any header.
fn with_header(version: (u8, u8), header: &str, data: &[f32]) -> Vec<u8> {
    let length = (header.len() as u32).to_le_bytes();
    let length = if version.0 == 1 {
        &length[..2]
    } else {
        &length
    };
    let data: Vec<u8> = data.iter().flat_map(|value| value.to_le_bytes()).collect();
    [
        b"\x93NUMPY",
        [version.0, version.1].as_slice(),
        length,
        header.as_bytes(),
        &data,
    ]
    .concat()
}

/// A header's text with this type, order and shape.
fn header(descr: &str, order: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n")
}

#[test]
fn the_files_of_these_tests_are_those_of_numpy() {
    assert_eq!(npy("(2, 3)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), BY_NUMPY);
}

#[test]
fn sums_are_written_byte_for_byte_as_numpy_would() {
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    let cases = [
        ("reverse-cumsum", "1", [6, 5, 3, 15, 11, 6]),
        ("reverse-cumsum", "-1", [6, 5, 3, 15, 11, 6]),
        ("reverse-cumsum", "0", [5, 7, 9, 4, 5, 6]),
        ("reverse-cumsum", "-2", [5, 7, 9, 4, 5, 6]),
        ("cumsum", "1", [1, 3, 6, 4, 9, 15]),
        ("cumsum", "0", [1, 2, 3, 5, 7, 9]),
    ];
    for (command, axis, expected) in cases {
        folder.succeed(&format!(
            "{command} x.npy y.npy --axis {axis} --backend cpu"
        ));
        let expected = npy("(2, 3)", &expected.map(|value| value as f32));
        assert_eq!(folder.read("y.npy"), expected, "{command} along {axis}");
    }
    assert_eq!(folder.names(), ["x.npy", "y.npy"]);
    assert_eq!(folder.read("x.npy"), BY_NUMPY);
}

#[test]
fn affine_scans_are_written_byte_for_byte_as_numpy_would() {
    let folder = Folder::new();
    // The factor of the first step is not used, so it may be NaN.
    folder.write(
        "a.npy",
        &npy("(2, 3)", &[f32::NAN, 2.0, 3.0, f32::NAN, 0.0, -1.0]),
    );
    folder.write("b.npy", BY_NUMPY);
    folder.succeed("affine-scan a.npy b.npy h.npy --axis 1 --backend cpu");
    let expected = npy("(2, 3)", &[1.0, 4.0, 15.0, 4.0, 5.0, 1.0]);
    assert_eq!(folder.read("h.npy"), expected);

    folder.write(
        "a.npy",
        &npy("(2, 3)", &[f32::NAN, f32::NAN, f32::NAN, 2.0, 0.0, -1.0]),
    );
    folder.succeed("affine-scan a.npy b.npy h.npy --axis 0 --backend cpu");
    let expected = npy("(2, 3)", &[1.0, 2.0, 3.0, 6.0, 5.0, 3.0]);
    assert_eq!(folder.read("h.npy"), expected);
}

#[test]
fn the_default_back_end_gives_the_same_integers() {
    let folder = Folder::new();
    let ones = vec![1.0; 3 * 5000];
    let counts: Vec<f32> = (0..3 * 5000)
        .map(|index| (5000 - index % 5000) as f32)
        .collect();
    folder.write("x.npy", &npy("(3, 5000)", &ones));
    folder.succeed("reverse-cumsum x.npy y.npy --axis 1");
    assert_eq!(folder.read("y.npy"), npy("(3, 5000)", &counts));
}

#[test]
fn infinities_and_nans_reach_the_sums_that_contain_them_and_no_others() {
    let folder = Folder::new();
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    folder.write(
        "x.npy",
        &npy(
            "(4, 3)",
            &[3., 1., 4., 1., inf, 0., 9., nan, 5., inf, -inf, 3.],
        ),
    );
    folder.succeed("reverse-cumsum x.npy y.npy --axis 1 --backend cpu");
    let written = folder.read("y.npy");
    let values: Vec<f32> = written[128..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let expected = [8., 5., 4., inf, inf, 0., nan, nan, 5., nan, -inf, 3.];
    assert_eq!(format!("{values:?}"), format!("{expected:?}"));
}

#[test]
fn arrays_without_elements_and_with_one() {
    let folder = Folder::new();
    for (shape, axes, elements) in [
        ("(0,)", 1, 0),
        ("(0, 5)", 2, 0),
        ("(3, 0, 4)", 3, 0),
        ("(1,)", 1, 1),
        ("(1, 1, 1)", 3, 1),
    ] {
        let file = npy(shape, &vec![7.0; elements]);
        folder.write("x.npy", &file);
        for axis in 0..axes {
            folder.succeed(&format!("cumsum x.npy y.npy --axis {axis} --backend cpu"));
            assert_eq!(folder.read("y.npy"), file, "{shape}");
            folder.succeed(&format!(
                "affine-scan x.npy x.npy y.npy --axis {axis} --backend cpu"
            ));
            assert_eq!(folder.read("y.npy"), file, "{shape}");
        }
    }
}

#[test]
fn headers_of_every_format_and_layout_are_read() {
    let folder = Folder::new();
    let data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let plain = header("'<f4'", "False", "(2, 3)");
    let variants = [
        ((1, 0), plain.clone()),
        ((2, 0), plain.clone()),
        ((3, 0), plain),
        // More blanks than format 1.0 has room for.
        (
            (2, 0),
            header("'<f4'", "False", "(2, 3)").replace('\n', &" ".repeat(70_000)),
        ),
        // Any order, both quotation marks, blanks of all kinds or none, no comma at the end.
        (
            (1, 0),
            "{'shape':(2,3),'fortran_order':False,'descr':'<f4'}".to_owned(),
        ),
        (
            (1, 0),
            " {\t\"descr\" : \"<f4\" ,\n 'shape' : ( 2 ,\n3 , ) , 'fortran_order' : False } \n\n"
                .to_owned(),
        ),
        // Python 2's integers.
        ((1, 0), header("'<f4'", "False", "(2L, 3L)")),
        // Every remainder by 4 of the data's place in the file.
        (
            (1, 0),
            header("'<f4'", "False", "(2, 3)").replace('\n', " "),
        ),
        (
            (1, 0),
            header("'<f4'", "False", "(2, 3)").replace('\n', "  "),
        ),
        (
            (1, 0),
            header("'<f4'", "False", "(2, 3)").replace('\n', "   "),
        ),
        (
            (1, 0),
            header("'<f4'", "False", "(2, 3)").replace('\n', "    "),
        ),
    ];
    for (version, header) in variants {
        folder.write("x.npy", &with_header(version, &header, &data));
        folder.succeed("cumsum x.npy y.npy --axis 1 --backend cpu");
        let expected = npy("(2, 3)", &[1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
        assert_eq!(folder.read("y.npy"), expected, "{version:?} {header:?}");
    }
}

#[test]
fn fortran_order_is_read_where_it_is_the_same_as_c_order() {
    let folder = Folder::new();
    for (shape, data) in [
        ("(4,)", 4),
        ("(1, 4, 1)", 4),
        ("(3, 0, 4)", 0),
        ("(1, 1)", 1),
    ] {
        let data = vec![1.0; data];
        folder.write(
            "x.npy",
            &with_header((1, 0), &header("'<f4'", "True", shape), &data),
        );
        folder.succeed("cumsum x.npy y.npy --axis 0 --backend cpu");
        let expected = match shape {
            "(4,)" => npy(shape, &[1.0, 2.0, 3.0, 4.0]),
            _ => npy(shape, &data),
        };
        assert_eq!(folder.read("y.npy"), expected);
    }
}

/// Its result is in Fortran order too, byte for byte as numpy writes that.
#[test]
fn fortran_order_stays_fortran_order() {
    let folder = Folder::new();
    let fortran = |shape: &str, data: &[f32]| {
        let extent = shape.trim_matches(['(', ')']).rsplit(", ").next().unwrap();
        let room = 21 - extent.len();
        let dict = format!(
            "{{'descr': '<f4', 'fortran_order': True, 'shape': {shape}, }}{:room$}",
            ""
        );
        with_header((1, 0), &format!("{dict:<117}\n"), data)
    };
    // [[1, 2, 3], [4, 5, 6]], and a tensor of 0 to 23.
    let matrix = fortran("(2, 3)", &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    folder.write("x.npy", &matrix);
    for (axis, expected) in [
        ("0", [1.0, 5.0, 2.0, 7.0, 3.0, 9.0]),
        ("-1", [1.0, 4.0, 3.0, 9.0, 6.0, 15.0]),
    ] {
        folder.succeed(&format!("cumsum x.npy y.npy --axis {axis} --backend cpu"));
        assert_eq!(folder.read("y.npy"), fortran("(2, 3)", &expected));
    }
    let index = |i: usize| {
        let (i, j, k) = (i % 2, i / 2 % 3, i / 6);
        (12 * i + 4 * j + k) as f32
    };
    let tensor: Vec<f32> = (0..24).map(index).collect();
    folder.write("x.npy", &fortran("(2, 3, 4)", &tensor));
    let sums = |axis: usize| -> Vec<f32> {
        let sum = |i: usize| {
            let (stride, extent) = [(1, 2), (2, 3), (6, 4)][axis];
            let position = i / stride % extent;
            (0..=position).map(|back| tensor[i - back * stride]).sum()
        };
        (0..24).map(sum).collect()
    };
    for axis in 0..3 {
        folder.succeed(&format!("cumsum x.npy y.npy --axis {axis} --backend cpu"));
        assert_eq!(folder.read("y.npy"), fortran("(2, 3, 4)", &sums(axis)));
    }
}

/// With inputs of both orders, or with other arrays, the result is in C order.
#[test]
fn fortran_order_beside_other_arrays_is_read_in_place() {
    let folder = Folder::new();
    let text = header("'<f4'", "True", "(2, 3)");
    let data = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
    folder.write("f.npy", &with_header((1, 0), &text, &data));
    folder.write("c.npy", BY_NUMPY);
    folder.succeed("affine-scan f.npy c.npy y.npy --axis 1 --backend cpu");
    let along_rows = npy("(2, 3)", &[1.0, 4.0, 15.0, 4.0, 25.0, 156.0]);
    assert_eq!(folder.read("y.npy"), along_rows);
    folder.succeed("affine-scan c.npy f.npy y.npy --axis 1 --backend cpu");
    assert_eq!(folder.read("y.npy"), along_rows);
    folder.succeed("reverse-cumsum f.npy y.npy --axis 0 --final last.npy --backend cpu");
    let sums = npy("(2, 3)", &[5.0, 7.0, 9.0, 4.0, 5.0, 6.0]);
    assert_eq!(folder.read("y.npy"), sums);
    assert_eq!(folder.read("last.npy"), npy("(3,)", &[5.0, 7.0, 9.0]));

    // The axes after this one have no common stride; and arrays of states are in C order.
    let text = header("'<f4'", "True", "(2, 2, 2)");
    folder.write("f.npy", &with_header((1, 0), &text, &[0.0; 8]));
    folder.fail(
        "cumsum f.npy z.npy --axis 0 --final last.npy --backend cpu",
        "f.npy: expected C order, got Fortran order for shape (2, 2, 2)",
    );
    let text = header("'<f4'", "True", "(2, 2)");
    folder.write("s.npy", &with_header((1, 0), &text, &[0.0; 4]));
    folder.write("c.npy", &npy("(2, 2, 2)", &[0.0; 8]));
    folder.fail(
        "cumsum c.npy z.npy --axis 0 --initial s.npy --backend cpu",
        "s.npy: expected C order, got Fortran order for shape (2, 2)",
    );
}

/// Each broken input, and what is said of it after its name.
fn broken_inputs() -> Vec<(Vec<u8>, String)> {
    let data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let file = |descr, order, shape| with_header((1, 0), &header(descr, order, shape), &data);
    let truncated = |bytes: usize| BY_NUMPY[..bytes].to_vec();
    let no_npy = "expected a .npy file, which begins with \"\\x93NUMPY\", got";
    let no_header = "expected a header with 'descr', 'fortran_order' and 'shape', got";
    let no_type = "expected dtype '<f2', '<f4', '<f8', '<c8', '<i4', '<i8', got";
    let broken_header = |text: &str| {
        (
            with_header((1, 0), text, &data),
            format!("{no_header} \"{}\"", text.replace('\n', "\\n")),
        )
    };
    vec![
        (truncated(0), format!("{no_npy} \"\"")),
        (
            b"PK\x03\x04 and more".to_vec(),
            format!("{no_npy} \"PK\\x03\\x04 and\""),
        ),
        (truncated(7), format!("{no_npy} \"\\x93NUMPY\\x01\"")),
        (
            with_header((1, 1), "{}", &[]),
            "expected .npy format 1.0, 2.0 or 3.0, got 1.1".into(),
        ),
        (
            with_header((4, 0), "{}", &[]),
            "expected .npy format 1.0, 2.0 or 3.0, got 4.0".into(),
        ),
        (
            truncated(9),
            "expected the length of the header, got the end of the file".into(),
        ),
        (
            truncated(100),
            "expected a header of 118 bytes, got 90".into(),
        ),
        (
            truncated(10),
            "expected a header of 118 bytes, got 0".into(),
        ),
        (
            b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec(),
            "expected a header of 4294967295 bytes, got 1".into(),
        ),
        broken_header(""),
        broken_header("not a dict\n"),
        broken_header("{'descr': '<f4', 'fortran_order': False}"),
        broken_header("{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}"),
        broken_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}"),
        broken_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,, 3)}"),
        broken_header("{'descr': '<f4', 'fortran_order': False, 'shape': 6}"),
        broken_header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"),
        broken_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}"),
        (
            with_header((1, 0), &"((".repeat(30_000), &data),
            format!("{no_header} \"{}…\"", "((".repeat(50)),
        ),
        (
            file("'<f16'", "False", "(2, 3)"),
            format!("{no_type} '<f16'"),
        ),
        (file("'>f4'", "False", "(2, 3)"), format!("{no_type} '>f4'")),
        (file("'|b1'", "False", "(2, 3)"), format!("{no_type} '|b1'")),
        (
            file("'<f8'", "False", "(2, 3)"),
            "expected 48 bytes of data for shape (2, 3), got 24".into(),
        ),
        (file("'|O'", "False", "(2, 3)"), format!("{no_type} '|O'")),
        (
            file("[('a', '<f4'), ('b', '<f4', (2,))]", "False", "(2,)"),
            format!("{no_type} [('a', '<f4'), ('b', '<f4', (2,))]"),
        ),
        (
            truncated(151),
            "expected 24 bytes of data for shape (2, 3), got 23".into(),
        ),
        (
            truncated(128),
            "expected 24 bytes of data for shape (2, 3), got 0".into(),
        ),
        (
            [BY_NUMPY, &[0]].concat(),
            "expected 24 bytes of data for shape (2, 3), got 25".into(),
        ),
        (
            file("'<f4'", "False", "(0, 3)"),
            "expected 0 bytes of data for shape (0, 3), got 24".into(),
        ),
        (
            file("'<f4'", "False", "(1000000000000,)"),
            "expected 4000000000000 bytes of data for shape (1000000000000,), got 24".into(),
        ),
        (
            file("'<f4'", "False", "(4294967296, 4294967296)"),
            "expected a shape that memory can hold, got (4294967296, 4294967296)".into(),
        ),
        (
            npy("()", &[1.0]),
            "cumsum: shape has rank 0, expected 1 or more".into(),
        ),
    ]
}

#[test]
fn a_broken_input_is_named_with_what_is_wrong_and_nothing_is_written() {
    let folder = Folder::new();
    folder.write("good.npy", BY_NUMPY);
    for (bytes, problem) in broken_inputs() {
        folder.write("x.npy", &bytes);
        folder.fail(
            "cumsum x.npy y.npy --axis 0 --backend cpu",
            &format!("x.npy: {problem}"),
        );
        let problem = problem.replace("cumsum:", "affine_scan:");
        folder.fail(
            "affine-scan x.npy x.npy y.npy --axis 0 --backend cpu",
            &format!("x.npy: {problem}"),
        );
    }
    folder.fail(
        "affine-scan good.npy x.npy y.npy --axis 0 --backend cpu",
        "x.npy: expected shape (2, 3) as in good.npy, got ()",
    );
}

/// A file of format 1.0 with elements of any type.
fn npy_of<const B: usize>(descr: &str, shape: &str, elements: &[[u8; B]]) -> Vec<u8> {
    let mut file = with_header((1, 0), &header(&format!("'{descr}'"), "False", shape), &[]);
    file.extend(elements.as_flattened());
    file
}

/// The data of a file, after its header.
fn data_of<const B: usize>(file: &[u8]) -> Vec<[u8; B]> {
    file[128..].as_chunks().0.to_vec()
}

#[test]
fn every_type_of_elements() {
    let folder = Folder::new();
    let check = |file: Vec<u8>, sums: &[u8]| {
        folder.write("x.npy", &file);
        folder.succeed("cumsum x.npy y.npy --axis 0 --backend cpu");
        assert_eq!(&folder.read("y.npy")[128..], sums);
    };
    let f16 = |values: [f32; 3]| values.map(|value| half::f16::from_f32(value).to_le_bytes());
    check(
        npy_of("<f2", "(3,)", &f16([1.0, 2.0, 3.0])),
        f16([1.0, 3.0, 6.0]).as_flattened(),
    );
    let f64 = |values: [f64; 3]| values.map(f64::to_le_bytes);
    check(
        npy_of("<f8", "(3,)", &f64([0.1, 0.2, -0.3])),
        f64([0.1, 0.1 + 0.2, 0.1 + 0.2 - 0.3]).as_flattened(),
    );
    let i32 = |values: [i32; 3]| values.map(i32::to_le_bytes);
    check(
        npy_of("<i4", "(3,)", &i32([i32::MAX, 1, 5])),
        i32([i32::MAX, i32::MIN, i32::MIN + 5]).as_flattened(),
    );
    let i64 = |values: [i64; 3]| values.map(i64::to_le_bytes);
    check(
        npy_of("<i8", "(3,)", &i64([1 << 60, 1, -1])),
        i64([1 << 60, (1 << 60) + 1, 1 << 60]).as_flattened(),
    );
    let c64 = |values: [f32; 4]| values.map(f32::to_le_bytes);
    let ones = npy_of("<c8", "(2,)", &c64([0.0, 1.0, 2.0, 1.0]));
    check(ones.clone(), c64([0.0, 1.0, 2.0, 2.0]).as_flattened());
    // i·i + 2 + i
    folder.write("a.npy", &npy_of("<c8", "(2,)", &c64([0.0, 1.0, 0.0, 1.0])));
    folder.write("x.npy", &ones);
    folder.succeed("affine-scan a.npy x.npy h.npy --axis 0 --backend cpu");
    assert_eq!(data_of(&folder.read("h.npy")), c64([0.0, 1.0, 1.0, 1.0]));

    folder.write("i.npy", &npy_of("<i4", "(3,)", &i32([1, 2, 3])));
    folder.fail(
        "affine-scan i.npy i.npy h.npy --axis 0 --backend cpu",
        "affine_scan: elements of type int32 are not supported",
    );
    folder.fail(
        "affine-scan a.npy i.npy h.npy --axis 0 --backend cpu",
        "i.npy: expected dtype '<c8' (little-endian complex64), got '<i4'",
    );
}

#[test]
fn options_are_files_too() {
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    folder.write("ones.npy", &npy("(2, 3)", &[1.0; 6]));
    folder.write("s.npy", &npy("(2,)", &[10.0, 20.0]));
    let run = |arguments: &str, values: [f32; 6]| {
        folder.succeed(&format!("{arguments} --backend cpu"));
        assert_eq!(folder.read("y.npy"), npy("(2, 3)", &values), "{arguments}");
    };
    let sum = "cumsum x.npy y.npy --axis 1";
    run(&format!("{sum} --exclusive"), [0., 1., 3., 0., 4., 9.]);
    run(
        &format!("{sum} --exclusive --initial s.npy --final f.npy"),
        [10., 11., 13., 20., 24., 29.],
    );
    assert_eq!(folder.read("f.npy"), npy("(2,)", &[16.0, 35.0]));
    let mask = [0, 1, 0, 1, 0, 1].map(|reset| [reset]);
    folder.write("m.npy", &npy_of("|b1", "(2, 3)", &mask));
    run(
        "affine-scan ones.npy x.npy y.npy --axis -1 --reset m.npy --initial s.npy",
        [11., 2., 5., 4., 9., 6.],
    );
    // Along axis 0 the mask is for all of a step.
    folder.write("m.npy", &npy_of("|b1", "(2,)", &[[0], [1]]));
    run(
        "cumsum x.npy y.npy --axis 0 --reset m.npy",
        [1., 2., 3., 4., 5., 6.],
    );
    // Two sequences, the first one empty.
    folder.write(
        "b.npy",
        &npy_of("<i4", "(3,)", &[0, 0, 2].map(i32::to_le_bytes)),
    );
    folder.write("s.npy", &npy("(2, 3)", &[7., 7., 7., 10., 20., 30.]));
    run(
        "reverse-cumsum x.npy y.npy --axis 0 --boundaries b.npy --initial s.npy --final f.npy",
        [15., 27., 39., 14., 25., 36.],
    );
    assert_eq!(
        folder.read("f.npy"),
        npy("(2, 3)", &[7., 7., 7., 15., 27., 39.])
    );
    // The states of a float16 array are of float32.
    let halves = [1.0, 2.0].map(|value| half::f16::from_f32(value).to_le_bytes());
    folder.write("h.npy", &npy_of("<f2", "(2,)", &halves));
    folder.write("s.npy", &npy("()", &[0.25]));
    folder.succeed("cumsum h.npy y.npy --axis 0 --initial s.npy --final f.npy --backend cpu");
    assert_eq!(folder.read("f.npy"), npy("()", &[3.25]));
}

#[test]
fn options_that_do_not_fit() {
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    folder.write("s.npy", &npy("(3,)", &[0.0; 3]));
    let fail = |options: &str, message: &str| {
        let arguments = format!("cumsum x.npy y.npy --axis 1 {options} --backend cpu");
        folder.fail(&arguments, message);
    };
    fail("--initial s.npy", "s.npy: expected shape (2,), got (3,)");
    fail(
        "--initial none.npy",
        "none.npy: cannot open: No such file or directory (os error 2)",
    );
    fail(
        "--final none/f.npy",
        "none/f.npy: cannot write: No such file or directory (os error 2)",
    );
    for path in ["y.npy", "./y.npy"] {
        fail(
            &format!("--final {path}"),
            &format!("{path}: expected a file for the final states, got that of the result"),
        );
    }
    fail(
        "--reset s.npy",
        "s.npy: expected dtype '|b1' (bool), got '<f4'",
    );
    folder.write("m.npy", &npy_of("|b1", "(3,)", &[[0]; 3]));
    fail("--reset m.npy", "m.npy: expected shape (2, 3), got (3,)");
    fail(
        "--boundaries s.npy",
        "s.npy: expected dtype '<i4', '<i8', got '<f4'",
    );
    let boundaries = |numbers: &[i64]| {
        let numbers: Vec<_> = numbers.iter().map(|number| number.to_le_bytes()).collect();
        let shape = format!("({},)", numbers.len());
        folder.write("b.npy", &npy_of("<i8", &shape, &numbers));
    };
    boundaries(&[0, -1, 3]);
    fail(
        "--boundaries b.npy",
        "b.npy: expected numbers that are not negative, got -1 at index 1",
    );
    boundaries(&[0, 3]);
    fail(
        "--boundaries b.npy",
        "cumsum: boundaries need extents of 1 before the axis, got 2 in all",
    );
    boundaries(&[0, 3, 1, 2]);
    folder.fail(
        "cumsum x.npy y.npy --axis 0 --boundaries b.npy --backend cpu",
        "cumsum: boundaries[1] is 3, expected 0 to 2",
    );
}

#[test]
fn a_broken_pipe_is_named_too() {
    let folder = Folder::new();
    for (bytes, problem) in broken_inputs() {
        let mut command = folder.command("cumsum /dev/stdin y.npy --axis 0 --backend cpu");
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The program may have seen enough before it has all.
        let _ = child.stdin.take().unwrap().write_all(&bytes);
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            text(&output.stderr),
            format!("ptxscan: /dev/stdin: {problem}\n")
        );
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(folder.names(), [""; 0]);
    }
}

#[test]
fn inputs_that_are_no_files() {
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    fs::create_dir(folder.path().join("folder")).unwrap();
    folder.fail(
        "cumsum none.npy y.npy --axis 0",
        "none.npy: cannot open: No such file or directory (os error 2)",
    );
    folder.fail(
        "affine-scan x.npy none.npy y.npy --axis 0",
        "none.npy: cannot open: No such file or directory (os error 2)",
    );
    folder.fail(
        "cumsum folder y.npy --axis 0",
        "folder: cannot read: Is a directory (os error 21)",
    );
}

#[test]
fn axes_that_the_array_does_not_have() {
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    let problem = |operation: &str, axis: &str| {
        format!("x.npy: {operation}: axis {axis} is out of range, expected -2 to 1 for rank 2")
    };
    for axis in ["2", "-3", "1000000", "-9223372036854775808"] {
        folder.fail(
            &format!("reverse-cumsum x.npy y.npy --axis {axis}"),
            &problem("reverse_cumsum", axis),
        );
        folder.fail(
            &format!("affine-scan x.npy x.npy y.npy --axis {axis}"),
            &problem("affine_scan", axis),
        );
    }
}

#[test]
fn inputs_of_different_shapes() {
    let folder = Folder::new();
    folder.write("a.npy", BY_NUMPY);
    for shape in ["(3, 2)", "(6,)", "(1, 2, 3)"] {
        folder.write("b.npy", &npy(shape, &[0.0; 6]));
        folder.fail(
            "affine-scan a.npy b.npy h.npy --axis 0",
            &format!("b.npy: expected shape (2, 3) as in a.npy, got {shape}"),
        );
    }
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    fs::create_dir(folder.path().join("folder")).unwrap();
    for (output, problem) in [
        ("none/y.npy", "No such file or directory (os error 2)"),
        ("x.npy/y.npy", "Not a directory (os error 20)"),
        ("folder", "Is a directory (os error 21)"),
    ] {
        folder.fail(
            &format!("cumsum x.npy {output} --axis 0 --backend cpu"),
            &format!("{output}: cannot write: {problem}"),
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_device_without_room() {
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    folder.fail(
        "cumsum x.npy /dev/full --axis 0 --backend cpu",
        "/dev/full: cannot write: No space left on device (os error 28)",
    );
}

#[test]
fn an_output_that_is_there_is_replaced_on_success_only() {
    let folder = Folder::new();
    folder.write("y.npy", b"precious");
    for (bytes, problem) in broken_inputs() {
        folder.write("x.npy", &bytes);
        // Among other things, this checks that y.npy is unchanged.
        folder.fail(
            "cumsum x.npy y.npy --axis 0 --backend cpu",
            &format!("x.npy: {problem}"),
        );
    }
    folder.write("x.npy", BY_NUMPY);
    folder.succeed("cumsum x.npy y.npy --axis 1 --backend cpu");
    assert_eq!(
        folder.read("y.npy"),
        npy("(2, 3)", &[1.0, 3.0, 6.0, 4.0, 9.0, 15.0])
    );
    assert_eq!(folder.names(), ["x.npy", "y.npy"]);
}

#[test]
fn an_output_may_be_an_input() {
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    folder.succeed("cumsum x.npy ./x.npy --axis 1 --backend cpu");
    assert_eq!(
        folder.read("x.npy"),
        npy("(2, 3)", &[1.0, 3.0, 6.0, 4.0, 9.0, 15.0])
    );

    folder.write("a.npy", &npy("(3,)", &[0.0, 2.0, 2.0]));
    folder.write("b.npy", &npy("(3,)", &[1.0, 1.0, 1.0]));
    folder.succeed("affine-scan a.npy b.npy b.npy --axis 0 --backend cpu");
    assert_eq!(folder.read("b.npy"), npy("(3,)", &[1.0, 3.0, 7.0]));
    assert_eq!(folder.names(), ["a.npy", "b.npy", "x.npy"]);
}

#[test]
#[cfg(unix)]
fn a_read_only_output_is_not_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    folder.write("y.npy", b"precious");
    let output = folder.path().join("y.npy");
    fs::set_permissions(&output, PermissionsExt::from_mode(0o444)).unwrap();
    let arguments = "cumsum x.npy y.npy --axis 1 --backend cpu";
    // Root writes what it likes.
    if fs::OpenOptions::new().write(true).open(&output).is_ok() {
        folder.succeed(arguments);
    } else {
        folder.fail(
            arguments,
            "y.npy: cannot write: Permission denied (os error 13)",
        );
    }
    let mode = fs::metadata(&output).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o444);
}

#[test]
#[cfg(unix)]
fn an_output_is_a_file_like_any_other() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    folder.succeed("cumsum x.npy y.npy --axis 1 --backend cpu");
    let mode = |name| {
        fs::metadata(folder.path().join(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(mode("y.npy"), mode("x.npy"));
}

#[test]
#[cfg(unix)]
fn an_output_is_written_through_a_link() {
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    folder.write("y.npy", b"old");
    let link = folder.path().join("link.npy");
    std::os::unix::fs::symlink("y.npy", &link).unwrap();
    folder.succeed("cumsum x.npy link.npy --axis 1 --backend cpu");
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(
        folder.read("y.npy"),
        npy("(2, 3)", &[1.0, 3.0, 6.0, 4.0, 9.0, 15.0])
    );
}

#[test]
#[cfg(unix)]
fn pipes_and_devices_in_place_of_files() {
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    let expected = npy("(2, 3)", &[1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);

    let output = folder.run("cumsum x.npy /dev/stdout --axis 1 --backend cpu");
    assert_eq!(
        (output.status.code(), output.stdout),
        (Some(0), expected.clone())
    );

    let mut command = folder.command("cumsum /dev/stdin /dev/stdout --axis 1 --backend cpu");
    let file = fs::File::create(folder.path().join("y.npy")).unwrap();
    let mut child = command.stdin(Stdio::piped()).stdout(file).spawn().unwrap();
    child.stdin.take().unwrap().write_all(BY_NUMPY).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(folder.read("y.npy"), expected);

    folder.succeed("cumsum x.npy /dev/null --axis 1 --backend cpu");
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    assert_eq!(folder.names(), ["x.npy", "y.npy"]);
}

#[test]
fn the_gpu_back_end_gives_the_result_or_says_in_a_line_why_not() {
    let folder = Folder::new();
    folder.write("x.npy", BY_NUMPY);
    let output = folder.run("cumsum x.npy y.npy --axis 1 --backend gpu");
    let stderr = text(&output.stderr);
    if output.status.success() {
        assert_eq!(stderr, "");
        assert_eq!(
            folder.read("y.npy"),
            npy("(2, 3)", &[1.0, 3.0, 6.0, 4.0, 9.0, 15.0])
        );
    } else {
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr.starts_with("ptxscan: ") && stderr.ends_with('\n'),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert_eq!(folder.names(), ["x.npy"]);
    }
}

#[test]
fn every_command_has_help() {
    let folder = Folder::new();
    let commands = [
        "",
        "demo",
        "reverse-cumsum",
        "cumsum",
        "affine-scan",
        "bench",
        "info",
    ];
    for command in commands {
        let output = folder.run(&format!("{command} --help"));
        assert_eq!(output.status.code(), Some(0), "{command}");
        let stdout = text(&output.stdout);
        let usage = format!("Usage: ptxscan {command}");
        assert!(stdout.contains(usage.trim_end()), "{stdout}");
        assert_eq!(text(&output.stderr), "");
        for line in stdout.lines() {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
    }
    let overview = folder.run("--help");
    for command in &commands[1..] {
        let line = format!("\n  {command} ");
        assert!(text(&overview.stdout).contains(&line), "{command}");
    }
    let axis = folder.run("affine-scan --help");
    for part in [
        "<A.npy> <B.npy> <OUT.npy>",
        "--axis <N>",
        "--backend <BACKEND>",
    ] {
        assert!(text(&axis.stdout).contains(part), "{part}");
    }
}

#[test]
fn wrong_usage_ends_with_status_2() {
    let folder = Folder::new();
    for arguments in [
        "cumsum x.npy y.npy",
        "cumsum x.npy --axis 0",
        "cumsum x.npy y.npy --axis one",
        "cumsum x.npy y.npy --axis 0 --backend tpu",
        "bench R9",
        "bench R1 --samples 19",
        "bench --op cumsum",
        "bench --op cumsum --shape 3",
        "bench --shape 3 --axis 0",
        "bench R1 --op cumsum --shape 3 --axis 0",
        "bench --op cumsum --shape 3 --axis 0 --dtype f8",
        "bench A1 --backward --exclusive",
        "bench A1 --sweep --samples 30",
        "bench A1 --startup",
        "bench --startup --packed",
        "bench --small --startup",
        "nothing",
    ] {
        let output = folder.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).starts_with("error: "), "{arguments}");
    }
}

#[test]
fn demo_is_what_runs_without_a_command() {
    let folder = Folder::new();
    for arguments in ["", "demo --backend cpu --seed 3"] {
        let output = folder.run(arguments);
        let stdout = text(&output.stdout);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{stdout}{}",
            text(&output.stderr)
        );
        let title = stdout
            .lines()
            .find(|line| line.starts_with("operation "))
            .expect(stdout);
        for column in [
            "shape",
            "back end",
            "device",
            "time",
            "GB/s",
            "of copy",
            "largest error",
        ] {
            assert!(title.contains(column), "{column}");
        }
        for operation in ["reverse-cumsum ", "affine-scan "] {
            let row = stdout
                .lines()
                .find(|line| line.starts_with(operation))
                .expect(stdout);
            let error: f64 = row.split_whitespace().last().unwrap().parse().unwrap();
            assert!(error > 0.0 && error < 1e-4, "{row}");
        }
        assert!(stdout.ends_with("Passed: the errors are within what 32-bit floats allow.\n"));
    }
    let cpu = folder.run("demo --backend cpu");
    assert!(text(&cpu.stdout).contains("smaller than a GPU's"));
}

#[test]
#[cfg(unix)]
fn a_reader_that_goes_away_is_no_error() {
    let folder = Folder::new();
    for arguments in [
        "demo --backend cpu",
        "info",
        "cumsum x.npy /dev/stdout --axis 0 --backend cpu",
    ] {
        folder.write("x.npy", BY_NUMPY);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = folder.command(arguments).stdout(writer).output().unwrap();
        assert_eq!(text(&output.stderr), "", "{arguments}");
        assert_eq!(output.status.code(), Some(141), "{arguments}");
    }
}

#[test]
fn info_tells_the_back_end() {
    let output = Folder::new().run("info");
    assert_eq!(output.status.code(), Some(0));
    let stdout = text(&output.stdout);
    let version = format!("ptxscan {}\n", env!("CARGO_PKG_VERSION"));
    assert!(stdout.starts_with(&version), "{stdout}");
    let gpu = stdout.contains("\nback end  gpu ") && stdout.contains("\ngpu 0     ");
    let cpu = stdout.contains("\nback end  cpu ") && stdout.contains("\nno gpu    ");
    assert!(gpu != cpu, "{stdout}");
}

#[test]
fn bench_measures_a_case_of_ones_own() {
    let folder = Folder::new();
    let output = folder.run(
        "bench --op affine-scan --shape 3,1000,7 --axis -2 --dtype f32 --backend cpu --json r.json",
    );
    let stdout = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{stdout}{}",
        text(&output.stderr)
    );
    let row = stdout.lines().last().unwrap();
    assert!(
        row.starts_with("-     affine-scan  (3, 1000, 7)     1  "),
        "{row}"
    );

    let rows: serde_json::Value = serde_json::from_slice(&folder.read("r.json")).unwrap();
    let [row] = rows.as_array().unwrap().as_slice() else {
        panic!("expected one row, got {rows}");
    };
    let mut names: Vec<&str> = row
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort();
    let mut expected = [
        "case",
        "op",
        "shape",
        "axis",
        "dtype",
        "backend",
        "device",
        "median_ms",
        "min_ms",
        "bytes",
        "gbps",
        "copy_gbps",
        "of_copy",
        "rel_error",
    ];
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(row["case"], "affine-scan (3, 1000, 7) axis 1");
    assert_eq!(row["op"], "affine-scan");
    assert_eq!(row["shape"], serde_json::json!([3, 1000, 7]));
    assert_eq!(row["axis"], 1);
    assert_eq!(row["dtype"], "f32");
    assert_eq!(row["backend"], "cpu");
    assert_ne!(row["device"], "");
    assert_eq!(row["bytes"], 3 * 4 * 3 * 1000 * 7);

    let number = |name: &str| row[name].as_f64().unwrap();
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} and {b} in {row}");
    close(number("gbps"), number("bytes") / number("median_ms") * 1e-6);
    close(number("of_copy"), number("gbps") / number("copy_gbps"));
    assert!(number("min_ms") > 0.0 && number("min_ms") <= number("median_ms"));
    assert!(number("rel_error") > 0.0 && number("rel_error") < 1e-6);
}

#[test]
fn bench_leaves_out_what_does_not_fit() {
    let folder = Folder::new();
    let earlier = b"[{\"case\": \"R1\"}]\n";
    folder.write("r.json", earlier);
    let output = folder
        .run("bench --op cumsum --shape 1000000,1000000 --axis 0 --backend cpu --json r.json");
    assert_eq!(output.status.code(), Some(2));
    let stderr: Vec<&str> = text(&output.stderr).lines().collect();
    let [left_out, nothing_ran] = stderr.as_slice() else {
        panic!("expected two lines, got {stderr:?}");
    };
    let beginning =
        "ptxscan: cumsum (1000000, 1000000) axis 0: left out: needs 8000.1 GB of memory, ";
    assert!(left_out.starts_with(beginning), "{left_out}");
    assert!(left_out.ends_with(" GB are available"), "{left_out}");
    assert_eq!(
        *nothing_ran,
        "ptxscan: no case was run: none fits in memory"
    );
    assert_eq!(folder.read("r.json"), earlier);
}

#[test]
fn bench_says_what_it_cannot_do_before_it_measures() {
    let folder = Folder::new();
    folder.fail(
        "bench R3 --backend cpu --json none/r.json",
        "none/r.json: cannot write: No such file or directory (os error 2)",
    );
    folder.fail(
        "bench --op cumsum --shape 2,0 --axis 0 --backend cpu",
        "cumsum (2, 0) axis 0: expected elements to measure with, got none",
    );
    folder.fail(
        "bench --op cumsum --shape 2,3 --axis 2 --backend cpu",
        "cumsum: axis 2 is out of range, expected -2 to 1 for rank 2",
    );
    folder.fail(
        "bench R4 --backward --backend cpu --json r.json",
        "reverse-cumsum (262144, 1024) axis 1: expected an affine scan, which has a gradient of its own",
    );
}

#[test]
fn bench_measures_small_scans_on_a_gpu_alone() {
    let message = "expected a GPU for --small, got the back end cpu";
    Folder::new().fail("bench --small --backend cpu", message);
}

#[test]
fn bench_measures_options_and_gradients() {
    let (elements, states) = (3 * 1000 * 7, 3 * 7);
    let tensor = 4 * elements;
    let cases = [
        ("--exclusive", "-exclusive", 3 * tensor),
        ("--initial", "-initial", 3 * tensor + 2 * 4 * states),
        ("--reset", "-reset", 3 * tensor + 3 * 1000),
        ("--backward", "-backward", 5 * tensor),
        (
            "--backward --initial --dtype bf16",
            "-initial-backward-bf16",
            5 * tensor / 2 + 3 * 4 * states,
        ),
        (
            "--dtype f64 --reset --reverse",
            "-reverse-reset-f64",
            6 * tensor + 3 * 1000,
        ),
    ];
    let folder = Folder::new();
    for (flags, suffix, bytes) in cases {
        let row = bench(&folder, &format!("--shape 3,1000,7 --axis 1 {flags}"));
        assert_eq!(
            row["case"],
            format!("affine-scan (3, 1000, 7) axis 1{suffix}")
        );
        assert_eq!(row["bytes"], bytes, "{flags}");
        let most = match row["dtype"].as_str().unwrap() {
            "bf16" => 1e-2,
            "f32" => 1e-6,
            _ => 1e-15,
        };
        assert!(row["rel_error"].as_f64().unwrap() < most, "{row}");
    }
    let row = bench(
        &folder,
        "--shape 3,1000,7 --axis 1 --packed --reset --seed 4",
    );
    assert_eq!(row["case"], "affine-scan (3, 1000, 7) axis 1-reset-packed");
    assert_eq!(row["shape"], serde_json::json!([3000, 7]));
    assert_eq!(row["axis"], 0);
    let boundaries = row["bytes"].as_u64().unwrap() as usize - 3 * tensor - 3000;
    // Of sequences of 1 to 2048 steps.
    assert!(boundaries.is_multiple_of(8) && boundaries >= 3 * 8, "{row}");
}

/// The row of a case of an affine scan that passes.
fn bench(folder: &Folder, arguments: &str) -> serde_json::Value {
    let arguments = format!("bench --op affine-scan {arguments} --backend cpu --json r.json");
    let output = folder.run(&arguments);
    assert_eq!(text(&output.stderr), "", "{arguments}");
    assert_eq!(output.status.code(), Some(0), "{arguments}");
    let rows: serde_json::Value = serde_json::from_slice(&folder.read("r.json")).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{arguments}");
    rows[0].clone()
}

#[test]
fn a_sweep_goes_through_all_choices() {
    let folder = Folder::new();
    let row = bench(&folder, "--shape 30,100,7 --axis 1 --sweep --initial");
    assert_eq!(row["case"], "affine-scan (30, 100, 7) axis 1-initial");
    // A CPU has one.
    assert_eq!(row["strategy"], "cpu");
    assert_eq!(row["picked"], true);
    let output = folder.run("bench --op cumsum --shape 30,100 --axis 1 --sweep --backend cpu");
    let stdout = text(&output.stdout);
    for part in [
        "\ncumsum     (30, 100)     1  cpu*  ",
        "\nThe slowest that the rules pick:\n",
        "\nAnother choice is faster by more than 5 % in 0 of 1 cases:\n",
    ] {
        assert!(stdout.contains(part), "{stdout}");
    }
}

#[test]
fn bench_tells_how_long_the_start_takes() {
    let folder = Folder::new();
    let output = folder.run("bench --startup --backend cpu --json r.json");
    assert_eq!(output.status.code(), Some(0));
    let rows: serde_json::Value = serde_json::from_slice(&folder.read("r.json")).unwrap();
    let rows = rows.as_array().unwrap();
    let steps: Vec<&str> = rows
        .iter()
        .map(|row| row["step"].as_str().unwrap())
        .collect();
    let expected = [
        "engine made",
        "first result of reverse_cumsum",
        "repeated result of reverse_cumsum",
        "first result of affine_scan",
        "repeated result of affine_scan",
    ];
    assert_eq!(steps, expected);
    for (row, step) in rows.iter().zip(expected) {
        assert!(row["ms"].as_f64().unwrap() > 0.0, "{row}");
        let line = format!("\n{step} ");
        assert!(text(&output.stdout).contains(&line), "{line}");
    }
}

#[test]
fn bench_knows_the_named_cases() {
    let help = Folder::new().run("bench --help");
    for case in [
        "R1   reverse-cumsum (32768, 32768) axis 1",
        "R2   reverse-cumsum (1024, 1048576) axis 1",
        "R3   reverse-cumsum (1, 268435456) axis 1",
        "R4   reverse-cumsum (262144, 1024) axis 1",
        "R5   reverse-cumsum (32768, 32768) axis 0",
        "A1   affine-scan (32, 4096, 256) axis 1",
        "A2   affine-scan (1, 65536, 1024) axis 1",
        "A3   affine-scan (8, 2048, 4096) axis 1",
        "A4   affine-scan (1, 1048576, 64) axis 1",
        "A5   affine-scan (256, 1024, 128) axis 1",
        "A6   affine-scan (1, 67108864, 1) axis 1",
        "A1t  affine-scan (32, 256, 4096) axis 2",
        "A2t  affine-scan (8, 1536, 8192) axis 2",
    ] {
        assert!(
            text(&help.stdout).contains(&format!("  {case}\n")),
            "{case}"
        );
    }
}
