//! Compiled kernels on disk, so that a second process starts without compiling.
//!
//! An entry holds its key in full (compiler, flags, source), so a hash that collides is a miss, and a checksum, so a
//! damaged or cut entry is a miss. Entries are written under a name of their own and renamed: readers see all or
//! nothing, and any number of processes may write.

use super::hash::fnv128;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Environment variable with the folder of the cache.
pub const CACHE_DIR: &str = "SAMEDRAW_CACHE_DIR";
const MAGIC: &[u8; 16] = b"samedraw cubin 1";
/// Magic, length of the key, length of the kernel, checksum of both.
const HEADER: usize = 16 + 8 + 8 + 16;

/// A folder of entries.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The user's cache, where the environment names a place for one.
    pub fn of_user() -> Option<Self> {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = from(CACHE_DIR)
            .or_else(|| from("XDG_CACHE_HOME").map(|dir| dir.join("samedraw")))
            .or_else(|| from("HOME").map(|dir| dir.join(".cache").join("samedraw")))?;
        Some(Cache { folder })
    }

    #[cfg(test)]
    fn at(folder: &Path) -> Self {
        Cache { folder: folder.to_owned() }
    }

    fn path(&self, key: &[u8]) -> PathBuf {
        self.folder.join(format!("{:032x}.cubin", fnv128(&[key])))
    }

    /// The entry of `key`; `None` where there is none or what is there is not a whole entry of this key.
    pub fn load(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut entry = fs::read(self.path(key)).ok()?;
        let (header, body) = entry.split_at_checked(HEADER)?;
        let word = |at: usize| header[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let (key_len, cubin_len) = (usize::try_from(word(16)?).ok()?, usize::try_from(word(24)?).ok()?);
        let (stored_key, cubin) = body.split_at_checked(key_len)?;
        let intact = header.starts_with(MAGIC)
            && stored_key == key
            && cubin.len() == cubin_len
            && header[32..] == fnv128(&[stored_key, cubin]).to_le_bytes();
        intact.then(|| entry.split_off(HEADER + key_len))
    }

    /// Writes the entry of `key`, replacing what is there; returns its path.
    pub fn store(&self, key: &[u8], cubin: &[u8]) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.folder)?;
        let path = self.path(key);
        let temporary = self.temporary(&path);
        let written = write_entry(&temporary, key, cubin).and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(&temporary);
        }
        written.map(|()| path)
    }

    /// A name in the same folder that no other process and no other thread uses.
    fn temporary(&self, path: &Path) -> PathBuf {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        path.with_extension(format!("{}.{count}.tmp", std::process::id()))
    }
}

fn write_entry(path: &Path, key: &[u8], cubin: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all(MAGIC)?;
    file.write_all(&(key.len() as u64).to_le_bytes())?;
    file.write_all(&(cubin.len() as u64).to_le_bytes())?;
    file.write_all(&fnv128(&[key, cubin]).to_le_bytes())?;
    file.write_all(key)?;
    file.write_all(cubin)?;
    // The rename must not reach the disk before the contents do.
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("samedraw-cache-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_entry_comes_back_and_damage_is_a_miss() {
        let folder = Folder::new("damage");
        let cache = Cache::at(&folder.0);
        assert_eq!(cache.load(b"key"), None);
        let path = cache.store(b"key", b"the kernel").unwrap();
        assert_eq!(cache.load(b"key").as_deref(), Some(&b"the kernel"[..]));
        assert_eq!(cache.load(b"another"), None);

        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(cache.load(b"key"), None, "cut to {cut} bytes");
        }
        for place in 0..whole.len() {
            let mut bad = whole.clone();
            bad[place] ^= 0x10;
            fs::write(&path, &bad).unwrap();
            assert_eq!(cache.load(b"key"), None, "byte {place} changed");
        }
        fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
        assert_eq!(cache.load(b"key"), None, "bytes appended");

        cache.store(b"key", b"the kernel").unwrap();
        assert_eq!(cache.load(b"key").as_deref(), Some(&b"the kernel"[..]), "a damaged entry is replaced");
    }

    #[test]
    fn a_name_that_collides_is_a_miss() {
        let folder = Folder::new("collide");
        let cache = Cache::at(&folder.0);
        let path = cache.store(b"one", b"kernel of one").unwrap();
        fs::rename(path, cache.path(b"two")).unwrap();
        assert_eq!(cache.load(b"two"), None);
    }

    #[test]
    fn many_writers_leave_one_whole_entry_and_no_temporary() {
        let folder = Folder::new("writers");
        let cache = Cache::at(&folder.0);
        let cubin: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        cache.store(b"key", &cubin).unwrap();
                        assert_eq!(cache.load(b"key").as_deref(), Some(&cubin[..]));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_and_a_miss() {
        let folder = Folder::new("refused");
        fs::write(&folder.0, b"a file").unwrap();
        let cache = Cache::at(&folder.0.join("below"));
        assert!(cache.store(b"key", b"kernel").is_err());
        assert_eq!(cache.load(b"key"), None);
        fs::remove_file(&folder.0).unwrap();
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Published vectors of FNV-1a 128 hold for bytes alone; here each part is led by its length.
        let plain = |bytes: &[u8]| {
            bytes.iter().fold(0x6c62272e07bb014262b821756295c58du128, |hash, byte| {
                (hash ^ u128::from(*byte)).wrapping_mul(0x0000000001000000000000000000013b)
            })
        };
        assert_eq!(plain(b"a"), 0xd228cb696f1a8caf78912b704e4a8964);
        let spelled = [&[1, 0, 0, 0, 0, 0, 0, 0, b'a'][..], &[2, 0, 0, 0, 0, 0, 0, 0, b'b', b'c']].concat();
        assert_eq!(fnv128(&[b"a", b"bc"]), plain(&spelled));
        assert_ne!(fnv128(&[b"a", b"bc"]), fnv128(&[b"ab", b"c"]));
    }
}
