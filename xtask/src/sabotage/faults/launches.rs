//! Faults in how work is launched and timed.

use super::Fault;

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "clusters_unasked",
        breaks: "a cluster is no larger than what the card can schedule",
        file: "src/device/cuda/modules.rs",
        find: "while largest > 1 && active_clusters(function, entry, largest)? == 0 {",
        replace: "while largest > 16 && active_clusters(function, entry, largest)? == 0 {",
        tests: "--test cuda_fake --features=cuda clusters_are_no_larger",
        quick: false,
    },
    Fault {
        name: "variant_ignored",
        breaks: "a way of launching that is unknown is refused by name",
        file: "src/device/cuda/switches.rs",
        find: "std::env::var(VARIABLE).map_or(Ok(Switches::default()), |text| Self::parse(&text))",
        replace: "Ok(std::env::var(VARIABLE).map_or(Switches::default(), |_| Switches::default()))",
        tests: "--test cuda_fake --features=cuda an_unknown_switch",
        quick: false,
    },
    Fault {
        name: "forced_cluster_ignored",
        breaks: "a test that forces a cluster size measures that size",
        file: "src/device/cuda/switches.rs",
        find: "switches.cluster = Some(size);",
        replace: "switches.cluster = Some(size).filter(|_| false);",
        tests: "--test cuda_fake --features=cuda switches_choose",
        quick: false,
    },
    Fault {
        name: "timed_once",
        breaks: "a timed graph holds every step it divides its time by",
        file: "src/device/timing.rs",
        find: "let enqueued = (0..steps).try_for_each(|step| enqueue(raw, step));",
        replace: "let enqueued = (0..1).try_for_each(|step| enqueue(raw, step));",
        tests: "--lib every_step_is_captured",
        quick: false,
    },
];
