//! Which architecture a chip has, by the name its runtime gives it.

/// The architecture the kernels are written for: Atlas A2 and A3.
pub(super) const ARCHITECTURE: &str = "dav-2201";

/// Prefixes of chip names, the longest first where one begins another, with what the chip is. `None` is the
/// architecture of the kernels.
const CHIPS: [(&str, Option<&str>); 9] = [
    ("Ascend910_93", None),
    ("Ascend950", Some("an Ascend 950 (dav-3510)")),
    ("Ascend910A", Some("an Ascend 910 of the first generation (dav-1001)")),
    ("Ascend910Pro", Some("an Ascend 910 of the first generation (dav-1001)")),
    ("Ascend910Premium", Some("an Ascend 910 of the first generation (dav-1001)")),
    ("Ascend310P", Some("an Ascend 310P (dav-2002)")),
    ("Ascend310B", Some("an Ascend 310B (dav-3002)")),
    ("Ascend310", Some("an Ascend 310 (dav-1001)")),
    ("Ascend910B", Some("an Ascend 910 of the first generation (dav-1001)")),
];

/// Whether the kernels run on the chip called `soc`; the reason if they do not.
pub(super) fn check(soc: &str) -> Result<(), String> {
    // "Ascend910B" alone is an old name of the first generation; the chips of Atlas A2 have a digit after it.
    let is_a2 = soc.strip_prefix("Ascend910B").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let kind = CHIPS.iter().find(|(prefix, _)| soc.starts_with(prefix)).map(|(_, kind)| *kind);
    match kind {
        _ if is_a2 => Ok(()),
        Some(None) => Ok(()),
        Some(Some(kind)) => Err(format!("{soc} is {kind}; {ARCHITECTURE} (Atlas A2, A3) is needed")),
        None => Err(format!("{soc} is a chip this version does not know; {ARCHITECTURE} (Atlas A2, A3) is needed")),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn chips_are_taken_or_refused_by_name() {
        let a2_and_a3 =
            ["Ascend910B1", "Ascend910B2C", "Ascend910B3", "Ascend910B4-1", "Ascend910_9392", "Ascend910_9362"];
        for taken in a2_and_a3 {
            assert_eq!(check(taken), Ok(()), "{taken}");
        }
        for (refused, says) in [
            ("Ascend950PR_9599", "dav-3510"),
            ("Ascend910A", "first generation"),
            ("Ascend910ProB", "first generation"),
            ("Ascend910PremiumA", "first generation"),
            ("Ascend910B", "first generation"),
            ("Ascend310P3", "310P"),
            ("Ascend310B4", "310B"),
            ("Ascend310", "Ascend 310 "),
            ("Ascend910", "does not know"),
            ("Ascend1000", "does not know"),
            ("", "does not know"),
        ] {
            let reason = check(refused).unwrap_err();
            assert!(reason.contains(says) && reason.starts_with(refused) && reason.contains("dav-2201"), "{reason}");
        }
    }
}
