//! The copy the faults are applied to.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of the repository's files, uncommitted changes included.
#[derive(Debug)]
pub struct Tree {
    path: PathBuf,
    target: PathBuf,
}

impl Tree {
    /// Brings the copy at `work` up to date. Files that did not change keep their time, so that nothing builds again
    /// on their account.
    pub fn copy(root: &Path, work: &Path) -> Result<Tree, String> {
        let tree = Tree { path: work.join("tree"), target: work.join("build") };
        let listed = list(root)?;
        for name in &listed {
            let from = root.join(name);
            let bytes = std::fs::read(&from).map_err(|e| format!("{}: {e}", from.display()))?;
            let to = tree.path.join(name);
            if std::fs::read(&to).is_ok_and(|old| old == bytes) {
                continue;
            }
            if let Some(folder) = to.parent() {
                std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            }
            std::fs::write(&to, bytes).map_err(|e| format!("{}: {e}", to.display()))?;
        }
        tree.remove_others(&tree.path, &listed)?;
        Ok(tree)
    }

    /// Removes files that the repository no longer has: a test that is gone must not run.
    fn remove_others(&self, folder: &Path, listed: &HashSet<PathBuf>) -> Result<(), String> {
        let fail = |e| format!("{}: {e}", folder.display());
        for entry in std::fs::read_dir(folder).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.is_dir() {
                self.remove_others(&path, listed)?;
            } else if path.strip_prefix(&self.path).is_ok_and(|name| !listed.contains(name)) {
                std::fs::remove_file(&path).map_err(fail)?;
            }
        }
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it builds: never the repository's own target folder, in which cargo would take an artifact with a fault for
    /// one of the repository's.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The text of a file.
    pub fn read(&self, name: &str) -> Result<String, String> {
        std::fs::read_to_string(self.path.join(name)).map_err(|e| format!("{name}: {e}"))
    }

    /// Replaces a file.
    pub fn write(&self, name: &str, text: &str) -> Result<(), String> {
        std::fs::write(self.path.join(name), text).map_err(|e| format!("{name}: {e}"))
    }
}

/// Files git tracks or would track, those that are deleted but not yet staged left out.
fn list(root: &Path) -> Result<HashSet<PathBuf>, String> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("git ls-files: {e}"))?;
    if !git.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&git.stderr)));
    }
    let names = String::from_utf8(git.stdout).map_err(|e| format!("git ls-files: {e}"))?;
    let names = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    Ok(names.filter(|name| root.join(name).is_file()).collect())
}
