//! Comparable forms of field values: the compiled form of `normalise.field_form`.

use std::io::Write;

use pyo3::prelude::*;
use pyo3::sync::GILOnceCell;
use pyo3::types::{PyFloat, PyString};

use super::sent::{Value, Values};
use super::text::{write_counted, Normal};
use crate::times::rfc3339_micros;

/// The range in which an integral double is certainly an `i64`.
const WHOLE: f64 = 9e18;

/// Computes forms of values, with reusable buffers.
pub struct Forms {
    normal: Normal,
    /// The last form computed.
    pub form: Vec<u8>,
}

impl Forms {
    /// `canonical`: whether canonically equivalent texts are equal.
    pub fn new(canonical: bool) -> Self {
        Forms {
            normal: Normal::new(canonical),
            form: Vec::new(),
        }
    }

    /// Computes the form of a field's value; false if it is absent.
    pub fn field(&mut self, py: Python<'_>, mut values: Values<'_>) -> PyResult<bool> {
        if values.len() == 1 {
            return match values.next() {
                Some(value) => self.scalar(py, value),
                None => Ok(false),
            };
        }
        let mut forms = Vec::new();
        for value in values {
            if self.scalar(py, value)? {
                forms.push(self.form.clone());
            }
        }
        forms.sort_unstable(); // UTF-8 has the order of code points
        self.form.clear();
        match forms.as_slice() {
            [] => return Ok(false),
            [only] => self.form.extend_from_slice(only),
            _ => {
                self.form.push(b'l');
                for form in &forms {
                    write_counted(&mut self.form, form);
                }
            }
        }
        Ok(true)
    }

    /// The normalised text of a field with a text or a list of one text.
    pub fn single_text(&mut self, py: Python<'_>, values: Values<'_>) -> PyResult<Option<&Normal>> {
        let mut present = None;
        for value in values {
            if self.scalar(py, value)? {
                if present.is_some() {
                    return Ok(None);
                }
                present = Some(value);
            }
        }
        match present {
            Some(Value::Text(text)) => {
                self.normal.set(py, text)?;
                Ok(Some(&self.normal))
            }
            _ => Ok(None),
        }
    }

    fn scalar(&mut self, py: Python<'_>, value: Value<'_>) -> PyResult<bool> {
        self.form.clear();
        match value {
            Value::Text(text) => return self.text(py, text),
            Value::Truth(truth) => self
                .form
                .extend_from_slice(if truth { b"b1" } else { b"b0" }),
            Value::Integer(digits) => {
                self.form.push(b'n');
                self.form.extend_from_slice(digits.as_bytes());
            }
            Value::Float(number) if number.fract() == 0.0 && number.abs() < WHOLE => {
                write!(self.form, "n{}", number as i64)?;
            }
            Value::Float(number) => self.hard_float(py, number)?,
            Value::Null | Value::List(_) | Value::Entries(_) => return Ok(false),
        }
        Ok(true)
    }

    fn text(&mut self, py: Python<'_>, text: &str) -> PyResult<bool> {
        self.normal.set(py, text)?;
        let text = self.normal.bytes.as_slice();
        let instant = match text.first() {
            None => return Ok(false),
            Some(b'0'..=b'9') => rfc3339_micros(text),
            Some(_) => None,
        };
        match instant {
            Some(instant) => write!(self.form, "t{}", instant)?,
            None => {
                self.form.push(b's');
                self.form.extend_from_slice(text);
            }
        }
        Ok(true)
    }

    /// Asks Python, because Rust breaks ties between two shortest forms differently.
    fn hard_float(&mut self, py: Python<'_>, number: f64) -> PyResult<()> {
        let number = PyFloat::new(py, number);
        if number.value().fract() != 0.0 {
            write!(self.form, "n{}", number.repr()?.to_str()?)?;
            return Ok(());
        }
        static SCALAR_FORM: GILOnceCell<Py<PyAny>> = GILOnceCell::new();
        let scalar_form =
            SCALAR_FORM.import(py, "stream_metrics.core.dedup.normalise", "scalar_form")?;
        let form = scalar_form.call1((number,))?;
        let form = form.downcast::<PyString>()?.to_str()?;
        self.form.extend_from_slice(form.as_bytes());
        Ok(())
    }
}
