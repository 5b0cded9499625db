//! A file that takes its place only when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempPath};

/// What the names of temporary files begin with.
const PREFIX: &str = ".ptxscan-";

/// A file that is written in the folder of its destination and put in its place by [`commit`](Self::commit).
///
/// Until then the destination is as it was, absent or whole, whatever happens to this process. On Linux the file has no
/// name until it is complete, where the file system can do that: so nothing is left behind either.
pub struct Replacement {
    file: File,
    name: Name,
    destination: PathBuf,
}

/// The name of a file that is not in its place yet.
enum Name {
    /// It goes with this process, however that ends.
    #[cfg(target_os = "linux")]
    None,
    /// It goes when this is dropped, so not if the process is killed.
    Temporary(TempPath),
}

impl Replacement {
    /// A new, empty file for `destination`, with the permissions of the file there, or else of any new file.
    ///
    /// A link at `destination` stays: the file that it leads to is replaced.
    ///
    /// # Errors
    /// What opening `destination` for writing would give.
    pub fn create(destination: &Path) -> io::Result<Self> {
        let (destination, permissions) = match fs::canonicalize(destination) {
            Ok(destination) => {
                // A rename asks only the folder, so a file that is not to be written is asked here.
                let file = OpenOptions::new().write(true).open(&destination)?;
                (destination, Some(file.metadata()?.permissions()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (destination.to_owned(), None),
            Err(error) => return Err(error),
        };
        let (file, name) = create_in(folder(&destination))?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        Ok(Self {
            file,
            name,
            destination,
        })
    }

    /// The file, to be written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes sure that `len` bytes can be written, through a mapping too, and gives the file that length.
    ///
    /// Without this a full disk would end a process that writes to a mapping by SIGBUS.
    /// Returns whether the file system can promise that.
    ///
    /// # Errors
    /// The disk has not that much room.
    pub fn reserve(&self, len: usize) -> io::Result<bool> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{FallocateFlags, fallocate};
            use rustix::io::{Errno, retry_on_intr};
            match retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), 0, len as u64)) {
                Ok(()) => Ok(true),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
                Err(error) => Err(error.into()),
            }
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = len;
            Ok(false)
        }
    }

    /// Puts the file in its place, in one step.
    ///
    /// # Errors
    /// The destination cannot be replaced. It is as it was.
    pub fn commit(self) -> io::Result<()> {
        let name = match self.name {
            Name::Temporary(name) => name,
            #[cfg(target_os = "linux")]
            Name::None => Builder::new()
                .prefix(PREFIX)
                .make_in(folder(&self.destination), |path| link(&self.file, path))?
                .into_temp_path(),
        };
        name.persist(&self.destination).map_err(|error| error.error)
    }
}

fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// A new file in `folder`, without a name if that can be had.
fn create_in(folder: &Path) -> io::Result<(File, Name)> {
    #[cfg(target_os = "linux")]
    if let Some(file) = create_nameless(folder)? {
        return Ok((file, Name::None));
    }
    create_named(folder)
}

fn create_named(folder: &Path) -> io::Result<(File, Name)> {
    let mut builder = Builder::new();
    builder.prefix(PREFIX);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)); // less the umask
    let (file, name) = builder.tempfile_in(folder)?.into_parts();
    Ok((file, Name::Temporary(name)))
}

/// `None` where the file system has no nameless files, or there is no /proc, which is needed to name them.
#[cfg(target_os = "linux")]
fn create_nameless(folder: &Path) -> io::Result<Option<File>> {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::Errno;
    let mode = Mode::from_raw_mode(0o666); // less the umask
    match open(
        folder,
        OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
        mode,
    ) {
        Ok(file) => Ok(Some(File::from(file)).filter(|file| descriptor(file).exists())),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The name under which this process reaches an open file.
#[cfg(target_os = "linux")]
fn descriptor(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Gives a nameless file a name.
#[cfg(target_os = "linux")]
fn link(file: &File, path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    Ok(linkat(
        CWD,
        descriptor(file),
        CWD,
        path,
        AtFlags::SYMLINK_FOLLOW,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file of either kind for `destination`.
    fn replacements(destination: &Path) -> Vec<Replacement> {
        let folder = folder(destination);
        [create_named(folder), create_in(folder)]
            .map(|file| {
                let (file, name) = file.unwrap();
                Replacement {
                    file,
                    name,
                    destination: destination.to_owned(),
                }
            })
            .into()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_destination_changes_when_the_file_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let destination = folder.path().join("out");
        for replacement in replacements(&destination) {
            fs::write(&destination, "old").unwrap();
            replacement.file().write_all(b"new").unwrap();
            assert_eq!(fs::read(&destination).unwrap(), b"old");
            replacement.commit().unwrap();
            assert_eq!(fs::read(&destination).unwrap(), b"new");
            assert_eq!(names(folder.path()), ["out"]);
        }
    }

    #[test]
    fn what_is_not_committed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for replacement in replacements(&folder.path().join("out")) {
            replacement.file().write_all(b"new").unwrap();
            drop(replacement);
            assert_eq!(names(folder.path()), [""; 0]);
        }
    }

    #[test]
    fn reserving_sets_the_length() {
        let folder = tempfile::tempdir().unwrap();
        for replacement in replacements(&folder.path().join("out")) {
            let expected = if replacement.reserve(5000).unwrap() {
                5000
            } else {
                0
            };
            assert_eq!(replacement.file.metadata().unwrap().len(), expected);
        }
    }

    #[test]
    #[cfg(unix)]
    fn permissions_are_those_of_the_old_file_or_of_any_new_one() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        let (plain, out) = (folder.path().join("plain"), folder.path().join("out"));
        File::create(&plain).unwrap();

        for replacement in replacements(&out) {
            replacement.commit().unwrap();
            assert_eq!(mode(&out), mode(&plain));
            fs::remove_file(&out).unwrap();
        }

        File::create(&out).unwrap();
        fs::set_permissions(&out, PermissionsExt::from_mode(0o640)).unwrap();
        Replacement::create(&out).unwrap().commit().unwrap();
        assert_eq!(mode(&out) & 0o777, 0o640);
    }

    #[test]
    #[cfg(unix)]
    fn a_link_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let replacement = Replacement::create(&link).unwrap();
        replacement.file().write_all(b"new").unwrap();
        replacement.commit().unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
    }
}
