//! Machine code embedded by the feature `precompiled`.

/// (unit, architecture as 90 for sm_90, CUBIN).
#[cfg(feature = "precompiled")]
const CUBINS: &[(&str, u32, &[u8])] = include!(concat!(env!("OUT_DIR"), "/cubins.rs"));
#[cfg(not(feature = "precompiled"))]
const CUBINS: &[(&str, u32, &[u8])] = &[];

/// The code of `unit` that runs on a card of this compute capability, with its architecture: machine code runs on its
/// own major version and on minor versions from its own up.
pub(super) fn find(unit: &str, compute: (u32, u32)) -> Option<(u32, &'static [u8])> {
    best(CUBINS, unit, compute)
}

fn best<'a>(cubins: &[(&str, u32, &'a [u8])], unit: &str, (major, minor): (u32, u32)) -> Option<(u32, &'a [u8])> {
    let fits = |arch: u32| arch / 10 == major && arch % 10 <= minor;
    let fitting = cubins.iter().filter(|(name, arch, _)| *name == unit && fits(*arch));
    fitting.max_by_key(|(_, arch, _)| *arch).map(|&(_, arch, cubin)| (arch, cubin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_code_runs_on_its_major_version() {
        let cubins: &[(&str, u32, &[u8])] =
            &[("a", 80, b"a80"), ("a", 90, b"a90"), ("a", 100, b"a100"), ("b", 80, b"b80"), ("a", 86, b"a86")];
        let of = |unit, compute| best(cubins, unit, compute).map(|(_, cubin)| cubin);
        assert_eq!(of("a", (8, 0)), Some(&b"a80"[..]));
        assert_eq!(of("a", (8, 6)), Some(&b"a86"[..]));
        assert_eq!(of("a", (8, 9)), Some(&b"a86"[..]));
        assert_eq!(of("b", (8, 9)), Some(&b"b80"[..]));
        assert_eq!(of("a", (9, 0)), Some(&b"a90"[..]));
        assert_eq!(of("a", (10, 3)), Some(&b"a100"[..]));
        assert_eq!(of("a", (12, 0)), None);
        assert_eq!(of("b", (9, 0)), None);
        assert_eq!(of("c", (8, 0)), None);
    }
}
