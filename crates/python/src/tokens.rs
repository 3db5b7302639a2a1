//! Token counters by name.

use pyo3::prelude::*;

use crate::error::invalid;

/// Counts tokens: `o200k`, `cl100k`, `estimate`, `chars/4` or `bytes/4`.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct TokenCounter(&'static dyn condenser::TokenCounter);

/// The counter with this name.
pub(crate) fn counter(name: &str) -> PyResult<&'static dyn condenser::TokenCounter> {
    condenser_models::tokenizer(name).map_err(invalid)
}

#[pymethods]
impl TokenCounter {
    #[new]
    #[pyo3(signature = (name = "o200k"))]
    fn py_new(name: &str) -> PyResult<Self> {
        counter(name).map(Self)
    }

    /// The name, which stands beside every count.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether the counts are an estimate and not a tokenizer's own.
    #[getter]
    fn is_estimate(&self) -> bool {
        self.0.is_estimate()
    }

    /// The tokens of a text.
    fn count(&self, py: Python<'_>, text: &str) -> u64 {
        py.detach(|| self.0.count(text).0)
    }

    fn __repr__(&self) -> String {
        format!("TokenCounter({:?})", self.0.name())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, pyo3::types::PyType>, (String,)) {
        (slf.get_type(), (slf.get().0.name().to_owned(),))
    }
}
