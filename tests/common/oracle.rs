//! Steps by the semantics, slowly: which row is which, what it outputs, how drafts are verified.

pub use super::row::{BAD_INDEX, EMPTY_ROW, INF_LOGITS, NAN_DRAFT, NAN_LOGITS};
use super::row::{Row, draft_mass, pick, random53, widen};
use samedraw::pipeline::{HostResult, HostStep, HostVerify, VerifyMode};

/// What output slots of padding rows go on holding.
const UNTOUCHED: i32 = -7777;
const DRAFT_SEED: u64 = 1_000_000_007;

// Sections 9 and 10: rows and requests.

/// floor(a * b / 2^shift).
pub fn product(a: u64, b: u64, shift: u32) -> u64 {
    ((u128::from(a) * u128::from(b)) >> shift) as u64
}

/// What a row's indices say.
enum Place {
    Padding,
    Bad,
    Live(Box<Row>, usize),
}

struct Outcome {
    token: i64,
    accepts: bool,
    status: i32,
}

struct Oracle<'a> {
    step: &'a HostStep<'a>,
    columns: usize,
}

/// Logits of one row of the buffer, as handed in.
pub fn logits_row(step: &HostStep<'_>, row: usize) -> Vec<f32> {
    let bytes = &step.logits[step.logits_offset..];
    (0..step.vocab).map(|v| widen(bytes, step.dtype, row * step.stride + v)).collect()
}

impl Oracle<'_> {
    fn logits_index(&self, row: usize) -> i64 {
        self.step.gather.map_or(row as i64, |gather| gather[row])
    }

    fn golden(&self, row: usize) -> i64 {
        self.step.golden.map_or(-1, |golden| golden[row])
    }

    /// A row by its slot, golden, gather and mask entries; its request is looked at elsewhere.
    fn place(&self, row: usize) -> Place {
        let step = self.step;
        let slot = step.row_to_slot.map_or(row as i64, |slots| i64::from(slots[row]));
        if slot == -1 {
            return Place::Padding;
        }
        let Some(params) = usize::try_from(slot).ok().and_then(|slot| step.params.get(slot)) else { return Place::Bad };
        let off = params.temperature < 1e-5;
        if step.filters.is_some_and(|filters| filters.all_greedy) && (off || params.top_k != 1) {
            return Place::Bad;
        }
        if let Some(filters) = step.filters
            && !off
            && ((params.top_k != -1 && !filters.top_k && !filters.all_greedy)
                || (params.top_p != 1.0 && !filters.top_p)
                || (params.min_p > 0.0 && !filters.min_p))
        {
            return Place::Bad;
        }
        let golden = self.golden(row);
        if golden < -1 || golden >= step.vocab as i64 {
            return Place::Bad;
        }
        let logits = self.logits_index(row);
        if logits < 0 || logits >= step.logits_rows as i64 {
            return Place::Bad;
        }
        let mut words: Option<&[i32]> = None;
        if let Some(mask) = &step.mask {
            let index = mask.index.map_or(row as i64, |index| i64::from(index[row]));
            if index < -1 || index >= (mask.words.len() / mask.stride) as i64 {
                return Place::Bad;
            }
            words = (index >= 0).then(|| &mask.words[index as usize * mask.stride..]);
        }
        let allowed = |v: usize| words.is_none_or(|words| words[v / 32] & (1i32 << (v % 32)) != 0);
        let logits = logits_row(step, logits as usize);
        Place::Live(Box::new(Row::new(&logits, allowed, params, self.columns)), slot as usize)
    }

    fn bits(&self, row: usize, base: usize, distance: i128, slot: usize, case: u64) -> u64 {
        let step = self.step;
        if let Some(bits) = step.injected_bits {
            return bits[3 * row + case as usize];
        }
        let mut seed = step.params[slot].seq_seed.expect("a case gives its seeds");
        let mut position = i128::from(step.positions.expect("a drawing case gives its positions")[base]) + distance;
        position += i128::from(step.position_offsets.map_or(0, |offsets| offsets[base]));
        if let Some(number) = step.draft_step {
            seed = seed.wrapping_add(DRAFT_SEED);
            position += i128::from(number);
        }
        random53(seed, position as i64, case)
    }

    /// Section 9 for one row, as if every draft before it was accepted. `None`: an index out of range.
    fn verify_row(&self, v: &HostVerify<'_>, row: usize, request: usize, target: &Row, slot: usize) -> Option<Outcome> {
        let first = v.first_rows[request] as usize;
        let distance = (row - first) as i128 * i128::from(v.position_stride);
        let bits = |case| self.bits(row, request, distance, slot, case);
        let (golden, last) = (self.golden(row), row + 1 == v.first_rows[request + 1] as usize);
        let forced_or = |draw: &dyn Fn() -> i64| if golden >= 0 { golden } else { draw() };
        let reject = |token, status| Some(Outcome { token, accepts: false, status });
        if last {
            return reject(forced_or(&|| target.draw(bits(0))), 0);
        }
        let d = v.draft_ids[row];
        if golden >= 0 || v.mode == VerifyMode::Chain {
            let token = forced_or(&|| target.draw(bits(0)));
            return Some(Outcome { token, accepts: token >= 0 && token == d, status: 0 });
        }
        if d < 0 || d >= self.step.vocab as i64 {
            return reject(target.draw(bits(2)), 0);
        }
        // The draft's logprob of a token; absent tokens have mass 0.
        let q: Box<dyn Fn(usize) -> f32> = if v.mode == VerifyMode::OneHot {
            Box::new(move |id| if id as i64 == d { 0.0 } else { f32::NEG_INFINITY })
        } else {
            let pool_rows = v.draft_logprobs.len() / v.draft_width;
            let pool_row = if v.draft_rows.is_empty() { row as i64 } else { i64::from(v.draft_rows[row]) };
            if pool_row < 0 || pool_row >= pool_rows as i64 {
                return None;
            }
            let span = pool_row as usize * v.draft_width..(pool_row as usize + 1) * v.draft_width;
            let logprobs = &v.draft_logprobs[span.clone()];
            let ids = (!v.draft_columns.is_empty()).then(|| &v.draft_columns[span]);
            Box::new(move |id| {
                let at = ids.map_or(Some(id), |ids| ids.iter().position(|&column| i64::from(column) == id as i64));
                at.and_then(|at| logprobs.get(at)).copied().unwrap_or(f32::NEG_INFINITY)
            })
        };
        if target.total == 0 {
            return reject(-1, 0);
        }
        let scaled = |id: usize| product(draft_mass(q(id)), target.total, 40);
        if target.columns.binary_search(&(d as usize)).is_ok() {
            if q(d as usize).is_nan() {
                return reject(target.draw(bits(2)), NAN_DRAFT);
            }
            if product(bits(1), scaled(d as usize), 53) < target.mass(d) {
                return Some(Outcome { token: d, accepts: true, status: 0 });
            }
        }
        let kept = target.kept();
        let status = if kept.iter().any(|&(id, _)| q(id).is_nan()) { NAN_DRAFT } else { 0 };
        let residual: Vec<_> = kept.iter().map(|&(id, w)| (id, w - w.min(scaled(id)))).collect();
        let from = if residual.iter().all(|r| r.1 == 0) { &kept } else { &residual };
        reject(pick(from, bits(2)), status)
    }
}

/// What a row outputs.
enum Shown<'a> {
    Nothing,
    Bad,
    Row(&'a Row, i64, i32),
}

/// What every output slot must hold after `step`.
pub fn expect(step: &HostStep<'_>) -> HostResult {
    let columns = if step.force_topk == 0 { step.vocab } else { step.force_topk.min(step.vocab) };
    let oracle = Oracle { step, columns };
    let places: Vec<Place> = (0..step.rows).map(|row| oracle.place(row)).collect();
    let mut out = HostResult::default();
    if step.columns {
        for place in &places {
            let (ids, values): (Vec<i32>, Vec<f32>) = match place {
                Place::Padding => (vec![UNTOUCHED; columns], vec![f32::NAN; columns]),
                Place::Bad => (vec![-1; columns], vec![f32::NEG_INFINITY; columns]),
                Place::Live(row, _) => row.columns.iter().map(|&id| (id as i32, row.values[id])).unzip(),
            };
            out.column_ids.extend(ids);
            out.column_values.extend(values);
        }
    }
    if !step.rows_wanted {
        return out;
    }
    let shown = match &step.verify {
        None => places.iter().enumerate().map(|(row, place)| oracle.sampled(row, place)).collect(),
        Some(v) => oracle.verified(v, &places, &mut out),
    };
    for (row, shown) in shown.into_iter().enumerate() {
        let golden_logits = || oracle.raw(row);
        show(&mut out, step, columns, shown, &golden_logits);
    }
    out
}

impl Oracle<'_> {
    fn sampled<'a>(&self, row: usize, place: &'a Place) -> Shown<'a> {
        match place {
            Place::Padding => Shown::Nothing,
            Place::Bad => Shown::Bad,
            Place::Live(live, slot) => {
                let token = match (self.golden(row), self.step.positions) {
                    (-1, None) => -1,
                    (-1, Some(_)) => live.draw(self.bits(row, row, 0, *slot, 0)),
                    (golden, _) => golden,
                };
                Shown::Row(live, token, live.status)
            }
        }
    }

    fn verified<'a>(&self, v: &HostVerify<'_>, places: &'a [Place], out: &mut HostResult) -> Vec<Shown<'a>> {
        let requests = v.first_rows.len() - 1;
        let span = |request: usize| v.first_rows[request] as usize..v.first_rows[request + 1] as usize;
        let width = (0..requests).map(|request| span(request).len()).max().unwrap_or(0);
        let mut accepts = vec![false; places.len()];
        let mut shown: Vec<Shown<'a>> = Vec::new();
        for (row, place) in places.iter().enumerate() {
            let request = v.row_to_request[row];
            let known = usize::try_from(request).ok().filter(|&r| r < requests && span(r).contains(&row));
            shown.push(match (request, known, place) {
                (-1, ..) | (_, _, Place::Padding) => Shown::Nothing,
                (_, None, _) | (_, _, Place::Bad) => Shown::Bad,
                (_, Some(request), Place::Live(live, slot)) => match self.verify_row(v, row, request, live, *slot) {
                    None => Shown::Bad,
                    Some(outcome) => {
                        accepts[row] = outcome.accepts;
                        Shown::Row(live, outcome.token, live.status | outcome.status)
                    }
                },
            });
        }
        for request in 0..requests {
            let (mut alive, mut accepted, mut index) = (true, 0, vec![-1; width]);
            for row in span(request) {
                match &mut shown[row] {
                    Shown::Row(live, token, status) if !alive => (*token, *status) = (-1, live.status),
                    Shown::Row(_, token, _) if *token >= 0 => index[row - span(request).start] = row as i32,
                    _ => {}
                }
                alive &= accepts[row];
                accepted += i32::from(alive);
            }
            out.accepted.push(accepted);
            out.accept_index.extend(index);
        }
        shown
    }

    /// The row with nothing done to it, for raw logprobs.
    fn raw(&self, row: usize) -> Row {
        let logits = logits_row(self.step, self.logits_index(row) as usize);
        Row::new(&logits, |_| true, &samedraw::SamplingParams::default(), self.step.vocab)
    }
}

/// Appends one row to every output that is wanted.
fn show(out: &mut HostResult, step: &HostStep<'_>, columns: usize, shown: Shown<'_>, raw: &dyn Fn() -> Row) {
    let (top, width) = (step.top_logprobs, step.kept_ids);
    let (row, token, status) = match shown {
        Shown::Row(row, token, status) => (Some(row), token, status),
        Shown::Bad => (None, -1, BAD_INDEX),
        Shown::Nothing => (None, i64::from(UNTOUCHED), UNTOUCHED),
    };
    let untouched = status == UNTOUCHED;
    let int = |bad: i32, live: &dyn Fn(&Row) -> i32| row.map_or(if untouched { UNTOUCHED } else { bad }, live);
    let float = |bad: f32, live: &dyn Fn(&Row) -> f32| row.map_or(if untouched { f32::NAN } else { bad }, live);
    let none = f32::NEG_INFINITY;
    out.tokens.push(token);
    out.status.push(status);
    out.logprobs.push(float(none, &|row| row.logprob(token)));
    if step.places {
        out.ranks.push(int(0, &|row| row.place(token).map_or(0, |place| place as i32 + 1)));
        out.kept_counts.push(int(0, &|row| row.ranked.len() as i32));
    }
    if step.raw_logprobs {
        out.raw_logprobs.push(float(none, &|_| if token < 0 { none } else { raw().logprob(token) }));
    }
    if step.sum_smaller_probs {
        out.sum_smaller_probs.push(float(0.0, &|row| row.sum_smaller(token)));
    }
    if top > 0 {
        out.top_counts.push(int(0, &|row| row.ranked.len().min(top) as i32));
        for place in 0..top {
            out.top_ids.push(int(-1, &|row| row.ranked.get(place).map_or(-1, |kept| kept.0 as i32)));
            out.top_logprobs.push(float(none, &|row| {
                if place < row.ranked.len() { row.logprob_at(place) } else { none }
            }));
        }
    }
    if step.dense {
        let by_id: std::collections::HashMap<usize, f32> = row
            .map(|row| (0..row.ranked.len()).map(|place| (row.ranked[place].0, row.logprob_at(place))).collect())
            .unwrap_or_default();
        for column in 0..columns {
            out.dense_ids.push(int(-1, &|row| row.columns[column] as i32));
            out.dense.push(float(none, &|row| by_id.get(&row.columns[column]).copied().unwrap_or(none)));
        }
    }
    if width > 0 {
        let kept = row.map(Row::kept).unwrap_or_default();
        for place in 0..width {
            out.kept_ids.push(int(-1, &|_| kept.get(place).map_or(-1, |kept| kept.0 as i32)));
        }
    }
}
