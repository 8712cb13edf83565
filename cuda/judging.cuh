// Whether the rows of this unit's kernels have drafts.
constexpr bool VERIFIES = true;
