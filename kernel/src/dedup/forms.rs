//! The comparable forms of field values; the twin of `normalise.field_form`.

use std::io::Write;

use pyo3::prelude::*;
use pyo3::sync::GILOnceCell;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString};

use super::text::{write_counted, Normal};
use crate::times::rfc3339_micros;

/// Where a whole number is surely an `i64`.
const WHOLE: f64 = 9e18;

/// Forms of values, with the room to make them in.
#[derive(Default)]
pub struct Forms {
    normal: Normal,
    /// The last form made.
    pub form: Vec<u8>,
}

impl Forms {
    /// Makes the form of a field's value; false if it is absent.
    pub fn field(&mut self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let list = match value.downcast_exact::<PyList>() {
            Ok(list) => list,
            Err(_) => return self.scalar(value),
        };
        let mut forms = Vec::with_capacity(list.len());
        for item in list.iter() {
            if self.scalar(&item)? {
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

    /// The normalised text of a field that is a text or a list of one text.
    pub fn single_text(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Option<&Normal>> {
        let mut value = value.clone();
        if let Ok(list) = value.downcast_exact::<PyList>() {
            let mut present = None;
            for item in list.iter() {
                if self.scalar(&item)? {
                    if present.is_some() {
                        return Ok(None);
                    }
                    present = Some(item);
                }
            }
            match present {
                Some(item) => value = item,
                None => return Ok(None),
            }
        }
        match value.downcast_exact::<PyString>() {
            Ok(text) => self.normal.set(value.py(), text.to_str()?)?,
            Err(_) => return Ok(None),
        }
        Ok(Some(&self.normal).filter(|normal| !normal.is_empty()))
    }

    fn scalar(&mut self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.form.clear();
        if let Ok(text) = value.downcast_exact::<PyString>() {
            return self.text(value.py(), text.to_str()?);
        }
        if value.is_none() {
            return Ok(false);
        }
        if let Ok(truth) = value.downcast_exact::<PyBool>() {
            let form = if truth.is_true() { b"b1" } else { b"b0" };
            self.form.extend_from_slice(form);
            return Ok(true);
        }
        if let Ok(number) = value.downcast_exact::<PyFloat>() {
            let number = number.value();
            if number.fract() == 0.0 && number.abs() < WHOLE {
                write!(self.form, "n{}", number as i64)?;
                return Ok(true);
            }
            if number.fract() != 0.0 {
                // Rust breaks ties between two shortest forms in another way than Python.
                let repr = value.repr()?;
                write!(self.form, "n{}", repr.to_str()?)?;
                return Ok(true);
            }
        } else if value.is_exact_instance_of::<PyInt>() {
            if let Ok(number) = value.extract::<i64>() {
                write!(self.form, "n{}", number)?;
                return Ok(true);
            }
        }
        self.asked(value)
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

    /// What Python says of a value that is none of the usual.
    fn asked(&mut self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        static SCALAR_FORM: GILOnceCell<Py<PyAny>> = GILOnceCell::new();
        let scalar_form =
            SCALAR_FORM.import(value.py(), "stream_metrics.dedup.normalise", "scalar_form")?;
        let form: Option<String> = scalar_form.call1((value,))?.extract()?;
        self.form.clear();
        match form {
            None => Ok(false),
            Some(form) => {
                self.form.extend_from_slice(form.as_bytes());
                Ok(true)
            }
        }
    }
}
