// FNV-1a over 128 bits: names cache entries, finds damaged ones, and tells prebuilt kernels of other sources apart. It
// guards against accidents; a cache entry's key is compared in full.
// No `//!` comment and full paths throughout: the build script includes this file.

/// The hash of `parts`, one after the other, each led by its length.
pub(crate) fn fnv128(parts: &[&[u8]]) -> u128 {
    const BASIS: u128 = 0x6c62272e07bb014262b821756295c58d;
    const PRIME: u128 = 0x0000000001000000000000000000013b;
    let step = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
    parts.iter().fold(BASIS, |hash, part| {
        let hash = (part.len() as u64).to_le_bytes().iter().fold(hash, step);
        part.iter().fold(hash, step)
    })
}

/// The hash of everything in the repository at `root` that decides what the kernels are compiled to: their sources,
/// how these make up units, and the compiler's flags.
///
/// # Errors
/// A file that cannot be read.
#[doc(hidden)]
pub fn sources_hash(root: &std::path::Path) -> std::io::Result<u128> {
    let mut files: Vec<std::path::PathBuf> = Vec::new();
    for entry in std::fs::read_dir(root.join("cuda"))? {
        files.push(entry?.path());
    }
    files.sort();
    files.extend(["kernels.rs", "nvrtc.rs"].map(|name| root.join("src/device/cuda").join(name)));
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for file in files {
        parts.push(file.file_name().unwrap_or_default().to_string_lossy().into_owned().into_bytes());
        parts.push(std::fs::read(&file)?);
    }
    Ok(fnv128(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()))
}
