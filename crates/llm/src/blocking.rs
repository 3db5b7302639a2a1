//! A summarizer for callers without a runtime.

use condenser::{SummarizeError, Summarizer, Summary, SummaryRequest};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::driver::AsyncSummarizer;
use crate::error::ClientError;

/// An [`AsyncSummarizer`] as a [`Summarizer`], with a small runtime of its own. Several threads may ask at once.
#[derive(Debug)]
pub struct Blocking<S> {
    inner: S,
    runtime: Runtime,
}

impl<S: AsyncSummarizer> Blocking<S> {
    /// Starts the runtime: one thread.
    ///
    /// # Errors
    /// [`ClientError::Setup`] where the system gives none.
    pub fn new(inner: S) -> Result<Self, ClientError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("condenser-llm").enable_all().build();
        let runtime = runtime.map_err(|error| ClientError::Setup(error.to_string()))?;
        Ok(Self { inner, runtime })
    }

    /// What is asked.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: AsyncSummarizer> Summarizer for Blocking<S> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError> {
        if Handle::try_current().is_ok() {
            let why = "a blocking summarizer was asked on a thread of an async runtime; use `condense` there";
            return Err(SummarizeError::Failed(why.to_owned()));
        }
        self.runtime.block_on(self.inner.summarize(request))
    }
}
