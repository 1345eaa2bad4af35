//! Results of a refused request: an error, or a response.

use crate::admission::Overloaded;

/// What comes of a refused request. [`Fail`] and [`AnswerWith`] are there; a service may have its own.
pub trait Refuse<Response, Inner> {
    /// The error type of the guarded service.
    type Error;

    /// What the caller of a refused request gets.
    ///
    /// # Errors
    /// If a refusal is an error.
    fn refuse(&self, overloaded: Overloaded) -> Result<Response, Self::Error>;

    /// An error of the service behind.
    fn from_inner(error: Inner) -> Self::Error;
}

/// A refusal is an error: [`AdmissionError::Overloaded`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Fail;

/// A refusal is a response that `answer` makes.
#[derive(Clone, Copy, Debug)]
pub struct AnswerWith<F> {
    pub(super) answer: F,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError<E> {
    /// The request was refused before the service saw it.
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    /// The inner service failed with this error.
    #[error("{0}")]
    Service(E),
}

impl<E> AdmissionError<E> {
    /// The refusal, if it is one.
    pub fn overloaded(&self) -> Option<&Overloaded> {
        match self {
            AdmissionError::Overloaded(overloaded) => Some(overloaded),
            AdmissionError::Service(_) => None,
        }
    }
}

impl<Response, Inner> Refuse<Response, Inner> for Fail {
    type Error = AdmissionError<Inner>;

    fn refuse(&self, overloaded: Overloaded) -> Result<Response, Self::Error> {
        Err(AdmissionError::Overloaded(overloaded))
    }

    fn from_inner(error: Inner) -> Self::Error {
        AdmissionError::Service(error)
    }
}

impl<Response, Inner, F: Fn(Overloaded) -> Response> Refuse<Response, Inner> for AnswerWith<F> {
    type Error = Inner;

    fn refuse(&self, overloaded: Overloaded) -> Result<Response, Inner> {
        Ok((self.answer)(overloaded))
    }

    fn from_inner(error: Inner) -> Inner {
        error
    }
}
