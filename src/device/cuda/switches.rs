//! What tests and measurements force, to compare the ways a stage can be launched. Each gives the same bits.

use crate::error::{Error, Result};

/// Environment variable that [`CudaDevice::open`](super::CudaDevice::open) takes the switches from: for tests.
pub(super) const VARIABLE: &str = "SAMEDRAW_CUDA_VARIANT";

/// Ways of launching, forced. The default forces nothing.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switches {
    /// No clusters of blocks, as on cards that have none.
    pub no_clusters: bool,
    /// The general kernels, one block a row, and no others.
    pub general: bool,
    /// Blocks of every cluster, where a row fits into so few; where it does not, the next size that holds it.
    pub cluster: Option<u32>,
    /// Clusters that stay, each taking row after row, wherever they can be used, however few rows there are.
    pub resident: bool,
    /// Whether launches may start before the one ahead of them has ended; `None`: as in production.
    pub overlap: Option<bool>,
}

impl Switches {
    /// Reads words separated by commas: `general`, `no-clusters`, `cluster:N` (1, 2, 4, 8 or 16), `resident`,
    /// `pdl`, `no-pdl`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for any other word, and for words that exclude one another.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |why: &str| {
            let known = "general, no-clusters, cluster:1, cluster:2, cluster:4, cluster:8, cluster:16, \
                         resident, pdl, no-pdl";
            Err(Error::Unsupported { op: "open", what: format!("{VARIABLE}={text:?} ({why}; known are {known})") })
        };
        let mut switches = Switches::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let overlap = match word {
                "general" => {
                    switches.general = true;
                    continue;
                }
                "no-clusters" => {
                    switches.no_clusters = true;
                    continue;
                }
                "resident" => {
                    switches.resident = true;
                    continue;
                }
                "pdl" => true,
                "no-pdl" => false,
                _ => match word.strip_prefix("cluster:").map(str::parse) {
                    Some(Ok(size @ (1 | 2 | 4 | 8 | 16))) if switches.cluster.is_none_or(|given| given == size) => {
                        switches.cluster = Some(size);
                        continue;
                    }
                    _ => return refuse(&format!("{word:?} is unknown or given twice")),
                },
            };
            if switches.overlap.replace(overlap).is_some_and(|given| given != overlap) {
                return refuse("pdl and no-pdl exclude one another");
            }
        }
        if (switches.cluster.is_some() || switches.resident) && (switches.general || switches.no_clusters) {
            return refuse("clusters go with neither general nor no-clusters");
        }
        Ok(switches)
    }

    /// The switches of the environment.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub(super) fn of_environment() -> Result<Self> {
        std::env::var(VARIABLE).map_or(Ok(Switches::default()), |text| Self::parse(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_or_refused() {
        let plain = Switches::default();
        for (text, expected) in [
            ("", plain),
            ("general", Switches { general: true, ..plain }),
            ("no-clusters, pdl", Switches { no_clusters: true, overlap: Some(true), ..plain }),
            ("cluster:4", Switches { cluster: Some(4), ..plain }),
            ("resident,cluster:2", Switches { resident: true, cluster: Some(2), ..plain }),
            ("cluster:16,no-pdl", Switches { cluster: Some(16), overlap: Some(false), ..plain }),
        ] {
            assert_eq!(Switches::parse(text), Ok(expected), "{text}");
        }
        for text in [
            "fast",
            "cluster:3",
            "cluster:",
            "cluster:2,cluster:4",
            "pdl,no-pdl",
            "general,cluster:2",
            "resident,general",
            "PDL",
        ] {
            let message = Switches::parse(text).expect_err("refused").to_string();
            assert!(message.contains(VARIABLE) && message.contains("cluster:16"), "{message}");
        }
    }
}
