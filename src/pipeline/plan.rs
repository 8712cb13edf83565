//! Which stages a step takes. Pure: shapes and wishes in, a list out.

use super::step::{Filters, Step, VerifyMode};
use crate::device::{DevPtr, StageKind};
use std::fmt;

/// What the plan depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Force-top-k leaves fewer columns than the vocabulary has.
    pub selects: bool,
    /// The filters the batch uses.
    pub filters: Filters,
    /// How drafts are verified.
    pub verify: Option<VerifyMode>,
    /// The drafts' distributions come with their own column ids.
    pub draft_columns: bool,
    /// The caller wants the selected columns themselves.
    pub wants_columns: bool,
    /// The caller wants results of the distribution.
    pub wants_rows: bool,
    /// Argmax alone can answer: no golden tokens, no injected bits, no output that needs masses.
    pub argmax_answers: bool,
}

impl Shape {
    /// The shape of `step` for a batch that uses `filters` and processes `columns` columns.
    pub fn of(step: &Step, filters: Filters, columns: usize) -> Shape {
        let out = &step.outputs;
        let needs_masses = out.dense.is_some()
            || out.kept_ids.is_some()
            || out.top.is_some()
            || !out.raw_logprobs.is_null()
            || !out.sum_smaller_probs.is_null();
        let pointers = [out.logprobs, out.ranks, out.kept_counts, out.status];
        Shape {
            selects: columns < step.logits.vocab,
            filters,
            verify: step.verify.map(|v| v.mode),
            draft_columns: step.verify.and_then(|v| v.drafts).is_some_and(|d| !d.columns.is_null()),
            wants_columns: out.columns.is_some(),
            wants_rows: needs_masses || out.tokens.is_some() || pointers.iter().any(|p| !p.is_null()),
            argmax_answers: !needs_masses
                && step.golden.is_none()
                && step.injected_bits == DevPtr::NULL
                && !step.positions.is_null(),
        }
    }
}

/// The stages of a step, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Plan {
    stages: [Option<StageKind>; 3],
    /// Later stages read the columns Select wrote, not the logits.
    pub from_columns: bool,
    /// Verify reads the logprobs Remap moved, not the draft pool.
    pub remapped: bool,
}

impl Plan {
    /// The stages.
    pub fn stages(&self) -> impl Iterator<Item = StageKind> + '_ {
        self.stages.iter().flatten().copied()
    }

    fn push(&mut self, stage: StageKind) {
        let free = self.stages.iter().position(Option::is_none).expect("a plan has at most three stages");
        self.stages[free] = Some(stage);
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, stage) in self.stages().enumerate() {
            write!(f, "{}{stage:?}", if n == 0 { "" } else { " > " })?;
            if self.from_columns && !matches!(stage, StageKind::Select | StageKind::Remap) {
                f.write_str("[columns]")?;
            }
            if self.remapped && stage == StageKind::Verify {
                f.write_str("[remapped]")?;
            }
        }
        Ok(())
    }
}

/// Plans a step.
///
/// Selection is a stage of its own only when something other than the row's own processing needs the columns: the
/// caller, or the remap of drafts into them. Otherwise the row's stage selects as it reads.
pub fn plan(shape: &Shape) -> Plan {
    let mut plan =
        Plan { remapped: shape.verify == Some(VerifyMode::Rejection) && shape.draft_columns, ..Plan::default() };
    if shape.wants_columns || (shape.selects && plan.remapped) {
        plan.push(StageKind::Select);
        plan.from_columns = true;
    }
    if plan.remapped {
        plan.push(StageKind::Remap);
    }
    match shape.verify {
        Some(_) => plan.push(StageKind::Verify),
        None if !shape.wants_rows => {}
        None if shape.filters.all_greedy && shape.argmax_answers => plan.push(StageKind::Argmax),
        None => plan.push(StageKind::Sample),
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_of_every_shape() {
        let plain = Shape {
            selects: false,
            filters: Filters::ALL,
            verify: None,
            draft_columns: false,
            wants_columns: false,
            wants_rows: true,
            argmax_answers: true,
        };
        let greedy = Filters { all_greedy: true, ..Filters::NONE };
        let verify = |mode, draft_columns, selects| Shape { verify: Some(mode), draft_columns, selects, ..plain };
        use VerifyMode::*;
        let snapshot = [
            ("any filters", plain, "Sample"),
            ("no filters", Shape { filters: Filters::NONE, ..plain }, "Sample"),
            ("force-top-k", Shape { selects: true, ..plain }, "Sample"),
            ("greedy", Shape { filters: greedy, ..plain }, "Argmax"),
            ("greedy, force-top-k", Shape { filters: greedy, selects: true, ..plain }, "Argmax"),
            ("greedy, golden", Shape { filters: greedy, argmax_answers: false, ..plain }, "Sample"),
            ("columns alone", Shape { selects: true, wants_columns: true, wants_rows: false, ..plain }, "Select"),
            ("columns too", Shape { selects: true, wants_columns: true, ..plain }, "Select > Sample[columns]"),
            (
                "columns, greedy",
                Shape { selects: true, wants_columns: true, filters: greedy, ..plain },
                "Select > Argmax[columns]",
            ),
            ("one-hot", verify(OneHot, false, false), "Verify"),
            ("one-hot, force-top-k", verify(OneHot, false, true), "Verify"),
            ("chain, force-top-k", verify(Chain, true, true), "Verify"),
            ("rejection", verify(Rejection, false, false), "Verify"),
            ("rejection, drafts by id, force-top-k", verify(Rejection, false, true), "Verify"),
            (
                "rejection, draft columns, force-top-k",
                verify(Rejection, true, true),
                "Select > Remap > Verify[columns][remapped]",
            ),
            ("rejection, draft columns", verify(Rejection, true, false), "Remap > Verify[remapped]"),
            ("verify, greedy", Shape { filters: greedy, ..verify(OneHot, false, false) }, "Verify"),
            ("nothing wanted", Shape { wants_rows: false, ..plain }, ""),
        ];
        for (name, shape, want) in snapshot {
            assert_eq!(plan(&shape).to_string(), want, "{name}");
        }
    }
}
