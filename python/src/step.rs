//! A step from keyword arguments: every array held to its type, shape, strides and place, by its name.

use crate::array::{Array, Place, Type};
use crate::errors::{argument, value};
use crate::stream;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use samedraw::device::{DevPtr, RawStream};
use samedraw::pipeline::{Columns, DType, Dense, Filters, Index, KeptIds, Logits, Mask, Outputs, Slots, TopLogprobs};
use samedraw::{Platform, Step};

/// A field for each argument, so that a call looks at none that it was not given.
macro_rules! given {
    ($($name:ident)+) => {
        #[derive(Default)]
        struct Given<'py> {
            $($name: Option<Bound<'py, PyAny>>,)+
        }

        impl<'py> Given<'py> {
            fn of(&mut self, name: &str) -> Option<&mut Option<Bound<'py, PyAny>>> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)+
                    _ => None,
                }
            }
        }
    };
}

// What a step takes beside the logits.
given! {
    stream rows vocab positions slots params gather mask mask_index golden position_offsets draft_step force_topk filters
    verify tokens logprobs ranks kept_counts status raw_logprobs sum_smaller_probs top_ids top_logprobs top_counts dense
    dense_ids kept_ids column_values column_ids
}

/// The arguments of one call.
pub struct Arguments<'py> {
    given: Given<'py>,
    place: Place,
    stream: RawStream,
}

type Object<'py> = Option<Bound<'py, PyAny>>;

pub const ANY_INT: &[Type] = &[Type::I32, Type::I64];
pub const I32: &[Type] = &[Type::I32];
const I64: &[Type] = &[Type::I64];
pub const F32: &[Type] = &[Type::F32];

impl<'py> Arguments<'py> {
    /// Sorts the keyword arguments; unknown ones are refused.
    pub fn new(py: Python<'py>, keywords: Option<&Bound<'py, PyDict>>, place: Place) -> PyResult<Self> {
        let mut given = Given::default();
        for (key, object) in keywords.into_iter().flatten() {
            let key: &Bound<'py, PyString> = key.cast()?;
            let key = key.to_cow()?;
            let Some(argument_of) = given.of(&key) else {
                return Err(argument(format!("a step has no argument {key:?}")));
            };
            *argument_of = (!object.is_none()).then_some(object);
        }
        let stream = stream::current(py, given.stream.as_ref(), place)?;
        Ok(Arguments { given, place, stream })
    }

    pub fn stream(&self) -> RawStream {
        self.stream
    }

    /// An array, held to its place and its types.
    pub fn array(&self, name: &str, object: &Bound<'py, PyAny>, types: &[Type]) -> PyResult<Array> {
        let array = Array::of(name, object, self.stream.0)?;
        if array.place != self.place {
            return Err(value(format!("{name} is on {}, the sampler on {}", array.place, self.place)));
        }
        if !types.contains(&array.dtype) {
            let wanted: Vec<String> = types.iter().map(Type::to_string).collect();
            return Err(value(format!("{name} has dtype {}: {} is expected", array.dtype, wanted.join(" or "))));
        }
        Ok(array)
    }

    /// One entry for each of `n`, behind each other.
    pub fn entries(
        &self,
        name: &str,
        object: &Bound<'py, PyAny>,
        types: &[Type],
        n: usize,
        out: bool,
    ) -> PyResult<Array> {
        let array = self.array(name, object, types)?;
        if array.shape() != [n] {
            return Err(value(format!("{name} has shape {:?}: [{n}] is expected", array.shape())));
        }
        if n > 1 && array.stride(0) != 1 {
            return Err(value(format!("{name} has stride {}: 1 is expected", array.stride(0))));
        }
        writable(name, &array, out)?;
        Ok(array)
    }

    /// A matrix whose rows lie in one piece each; its width and the distance of its rows. `rows` of `None` is any number.
    pub fn matrix(
        &self,
        name: &str,
        object: &Bound<'py, PyAny>,
        types: &[Type],
        rows: Option<usize>,
        out: bool,
    ) -> PyResult<(Array, usize, usize)> {
        let array = self.array(name, object, types)?;
        let (found, width) = match *array.shape() {
            [found, width] if rows.is_none_or(|rows| rows == found) => (found, width),
            ref shape => {
                let rows = rows.map_or("rows".into(), |rows| rows.to_string());
                return Err(value(format!("{name} has shape {shape:?}: [{rows}, columns] is expected")));
            }
        };
        if width > 1 && array.stride(1) != 1 {
            return Err(value(format!("{name} has stride {} between columns: 1 is expected", array.stride(1))));
        }
        let stride = match usize::try_from(array.stride(0)) {
            _ if found <= 1 => width,
            Ok(stride) if stride >= width => stride,
            _ => {
                let least = format!("at least its {width} columns");
                return Err(value(format!("{name} has stride {} between rows: {least} is expected", array.stride(0))));
            }
        };
        writable(name, &array, out)?;
        Ok((array, width, stride))
    }

    fn pointer(&self, name: &str, object: &Object<'py>, types: &[Type], n: usize) -> PyResult<DevPtr> {
        let Some(object) = object else { return Ok(DevPtr::NULL) };
        Ok(self.entries(name, object, types, n, false)?.ptr)
    }

    fn index(&self, name: &str, object: &Object<'py>, n: usize) -> PyResult<Option<Index>> {
        let Some(object) = object else { return Ok(None) };
        Ok(Some(index_of(self.entries(name, object, ANY_INT, n, false)?)))
    }

    fn out(&self, name: &str, object: &Object<'py>, types: &[Type], n: usize) -> PyResult<DevPtr> {
        let Some(object) = object else { return Ok(DevPtr::NULL) };
        Ok(self.entries(name, object, types, n, true)?.ptr)
    }

    /// The step these arguments describe.
    pub fn step(&self, logits: &Bound<'py, PyAny>) -> PyResult<Step> {
        let given = &self.given;
        let logits = self.logits(logits)?;
        let (rows, vocab) = (self.rows(&logits)?, logits.vocab);
        let verify = given.verify.as_ref().map(|verify| self.verify(verify, rows)).transpose()?;
        let entries = verify.as_ref().map_or(rows, |verify| verify.requests);
        Ok(Step {
            logits,
            rows,
            gather: self.index("gather", &given.gather, rows)?,
            force_topk: number(&given.force_topk)?.unwrap_or(0),
            mask: self.mask(rows)?,
            row_to_slot: self.index("slots", &given.slots, rows)?,
            slots: self.params()?,
            positions: self.pointer("positions", &given.positions, I64, entries)?,
            position_offsets: self.pointer("position_offsets", &given.position_offsets, I32, entries)?,
            draft_step: given.draft_step.as_ref().map(|number| number.extract()).transpose()?,
            golden: self.index("golden", &given.golden, rows)?,
            filters: self.filters()?,
            verify,
            outputs: self.outputs(rows, vocab)?,
            ..Step::default()
        })
    }

    fn logits(&self, logits: &Bound<'py, PyAny>) -> PyResult<Logits> {
        let array = self.array("logits", logits, &[Type::F32, Type::F16, Type::Bf16])?;
        let dtype = match array.dtype {
            Type::F16 => DType::F16,
            Type::Bf16 => DType::BF16,
            _ => DType::F32,
        };
        let (rows, columns, stride) = match *array.shape() {
            [columns] => (1, columns, columns as i64),
            [rows, columns] => (rows, columns, if rows <= 1 { columns as i64 } else { array.stride(0) }),
            ref shape => return Err(value(format!("logits have shape {shape:?}: [rows, vocab] is expected"))),
        };
        let last = array.shape().len() - 1;
        if columns > 1 && array.stride(last) != 1 {
            return Err(value(format!("logits have stride {} between tokens: 1 is expected", array.stride(last))));
        }
        let vocab = number(&self.given.vocab)?.unwrap_or(columns);
        if vocab > columns {
            return Err(value(format!("vocab = {vocab} is refused: the logits have {columns} columns")));
        }
        let stride = usize::try_from(stride).ok().filter(|&stride| stride >= vocab);
        let stride = stride.ok_or_else(|| {
            value(format!("logits have stride {} between rows: at least vocab = {vocab} is expected", array.stride(0)))
        })?;
        Ok(Logits { ptr: array.ptr, dtype, rows, vocab, stride })
    }

    /// Rows of the step: said, or as many as there are slots, gather indices, or rows of logits.
    fn rows(&self, logits: &Logits) -> PyResult<usize> {
        if let Some(rows) = number(&self.given.rows)? {
            return Ok(rows);
        }
        for (name, object) in [("slots", &self.given.slots), ("gather", &self.given.gather)] {
            if let Some(object) = object {
                return Ok(Array::of(name, object, self.stream.0)?.shape().first().copied().unwrap_or(0));
            }
        }
        Ok(logits.rows)
    }

    fn mask(&self, rows: usize) -> PyResult<Option<Mask>> {
        let Some(object) = &self.given.mask else {
            return match &self.given.mask_index {
                Some(_) => Err(value("mask_index is given without a mask")),
                None => Ok(None),
            };
        };
        let (array, _, stride) = self.matrix("mask", object, &[Type::I32, Type::U32], None, false)?;
        Ok(Some(Mask {
            ptr: array.ptr,
            rows: array.shape()[0],
            stride,
            index: self.index("mask_index", &self.given.mask_index, rows)?,
        }))
    }

    fn params(&self) -> PyResult<Option<Slots>> {
        let Some(object) = &self.given.params else { return Ok(None) };
        let (array, width, stride) = self.matrix("params", object, &[Type::I64, Type::U64], None, false)?;
        if (width, stride) != (8, 8) {
            let shape = array.shape();
            return Err(value(format!(
                "params have shape {shape:?}, {stride} apart: [slots, 8], 8 apart, is expected"
            )));
        }
        Ok(Some(Slots { ptr: array.ptr, count: array.shape()[0] }))
    }

    fn filters(&self) -> PyResult<Option<Filters>> {
        let Some(object) = &self.given.filters else { return Ok(None) };
        let mut filters = Filters::NONE;
        for name in object.try_iter()? {
            let name = name?;
            match &*name.cast::<PyString>()?.to_cow()? {
                "top_k" => filters.top_k = true,
                "top_p" => filters.top_p = true,
                "min_p" => filters.min_p = true,
                "all_greedy" => filters.all_greedy = true,
                other => return Err(value(format!("filter {other:?} is refused: top_k, top_p, min_p or all_greedy"))),
            }
        }
        Ok(Some(filters))
    }

    fn outputs(&self, rows: usize, vocab: usize) -> PyResult<Outputs> {
        let given = &self.given;
        let tokens = match &given.tokens {
            Some(object) => Some(index_of(self.entries("tokens", object, ANY_INT, rows, true)?)),
            None => None,
        };
        let list = |name: &str, object: &Object<'py>, types: &[Type]| -> PyResult<Option<(DevPtr, usize)>> {
            let Some(object) = object else { return Ok(None) };
            let (array, width, stride) = self.matrix(name, object, types, Some(rows), true)?;
            if width != stride {
                return Err(value(format!(
                    "{name} has stride {stride} between rows: its {width} columns are expected"
                )));
            }
            Ok(Some((array.ptr, width)))
        };
        let needs = |what: &str, of: &str| value(format!("{what} is given without {of}"));
        let top = match (list("top_ids", &given.top_ids, I32)?, list("top_logprobs", &given.top_logprobs, F32)?) {
            (None, None) if given.top_counts.is_some() => return Err(needs("top_counts", "top_ids")),
            (None, None) => None,
            (Some((ids, width)), Some((logprobs, other))) if width == other => Some(TopLogprobs {
                width,
                ids,
                logprobs,
                counts: self.out("top_counts", &given.top_counts, I32, rows)?,
            }),
            (Some((_, width)), Some((_, other))) => {
                return Err(value(format!("top_logprobs has {other} columns, top_ids {width}")));
            }
            (None, _) => return Err(needs("top_logprobs", "top_ids")),
            (_, None) => return Err(needs("top_ids", "top_logprobs")),
        };
        let wide = |name: &str, object: &Object<'py>, types: &[Type]| {
            object.as_ref().map(|object| self.matrix(name, object, types, Some(rows), true)).transpose()
        };
        let dense = match (wide("dense", &given.dense, F32)?, wide("dense_ids", &given.dense_ids, I32)?) {
            (None, None) => None,
            (None, Some(_)) => return Err(needs("dense_ids", "dense")),
            (Some((dense, _, stride)), ids) => {
                if let Some((_, _, other)) = ids
                    && other != stride
                {
                    return Err(value(format!("dense_ids has stride {other} between rows, dense {stride}")));
                }
                let ids = ids.map_or(DevPtr::NULL, |(ids, ..)| ids.ptr);
                Some(Dense { logprobs: dense.ptr, ids, stride })
            }
        };
        let columns =
            match (list("column_values", &given.column_values, F32)?, list("column_ids", &given.column_ids, I32)?) {
                (None, None) => None,
                (Some((values, width)), Some((ids, other))) if width == other => {
                    let columns = number(&self.given.force_topk)?.unwrap_or(0).min(vocab);
                    if width != columns {
                        return Err(value(format!(
                            "column_values has {width} columns: min(force_topk, V) = {columns} is expected"
                        )));
                    }
                    Some(Columns { values, ids })
                }
                _ => return Err(needs("one of column_values and column_ids", "the other, of the same shape")),
            };
        Ok(Outputs {
            tokens,
            logprobs: self.out("logprobs", &given.logprobs, F32, rows)?,
            ranks: self.out("ranks", &given.ranks, I32, rows)?,
            kept_counts: self.out("kept_counts", &given.kept_counts, I32, rows)?,
            status: self.out("status", &given.status, I32, rows)?,
            raw_logprobs: self.out("raw_logprobs", &given.raw_logprobs, F32, rows)?,
            sum_smaller_probs: self.out("sum_smaller_probs", &given.sum_smaller_probs, F32, rows)?,
            top,
            dense,
            kept_ids: list("kept_ids", &given.kept_ids, I32)?.map(|(ids, width)| KeptIds { ids, width }),
            columns,
        })
    }
}

fn number(given: &Object<'_>) -> PyResult<Option<usize>> {
    given.as_ref().map(|number| number.extract()).transpose()
}

pub fn index_of(array: Array) -> Index {
    if array.dtype == Type::I64 { Index::i64(array.ptr) } else { Index::i32(array.ptr) }
}

fn writable(name: &str, array: &Array, out: bool) -> PyResult<()> {
    if out && !array.writable { Err(value(format!("{name} is read-only"))) } else { Ok(()) }
}

/// The place of a device, as arrays have one.
pub fn place_of(platform: Platform, ordinal: usize) -> Place {
    Place { platform, ordinal: if platform == Platform::Cpu { 0 } else { ordinal } }
}
