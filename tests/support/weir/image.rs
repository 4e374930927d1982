//! The process as an image runs it: under the name of envoyproxy/ratelimit's binary, without
//! arguments, and as a user who may not write anything.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

use tempfile::TempDir;

use super::{Setup, Weir, program};

/// The binary.
const WEIR: &str = env!("CARGO_BIN_EXE_weir");

impl Weir {
    /// The process under the name `ratelimit`, without arguments. Only its ports and the form of its
    /// log are set. A write to a file ends it, by SIGXFSZ.
    pub(crate) fn image() -> Setup {
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().join("ratelimit");
        symlink(WEIR, &path).expect("a new link");
        // Only a shell can set the limit here, because the standard library cannot.
        let mut command = program(Path::new("/bin/sh"));
        command.args(["-c", "ulimit -f 0 && exec \"$0\""]).arg(&path);
        // Fixed ports would collide on one machine.
        command.envs([("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0")]);
        command.envs([("HOST", "127.0.0.1"), ("GRPC_HOST", "127.0.0.1"), ("LOG_FORMAT", "json")]);
        Setup { folder, command, listeners: Vec::new(), rules: None }
    }
}

impl Setup {
    /// Runs the process as this user and group, in a folder that it cannot write to. Only root can
    /// change the user: without root the process has the user of the tests, and the output says so.
    pub(crate) fn of_user(mut self, id: u32) -> Setup {
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("the folder is ours");
        };
        let closed = self.folder.path().join("closed");
        fs::create_dir(&closed).expect("a new folder");
        set(&closed, 0o555);
        set(self.folder.path(), 0o755);
        self.command.current_dir(&closed);
        if is_root() {
            // In the home of root, for example, no other user can run it.
            if Path::new(WEIR).ancestors().any(|path| !is_open(path)) {
                let path = self.folder.path().join("ratelimit");
                fs::remove_file(&path).expect("the link");
                fs::copy(WEIR, &path).expect("a copy of the binary");
                set(&path, 0o755);
            }
            self.command.uid(id).gid(id);
        } else {
            eprintln!("without root, weir has the user of the tests instead of user {id}");
        }
        self
    }
}

fn is_root() -> bool {
    // Its owner is the effective user of this process.
    fs::metadata("/proc/self").expect("Linux").uid() == 0
}

/// Whether every user may enter the folder or run the file.
fn is_open(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.mode() & 0o001 != 0)
}
