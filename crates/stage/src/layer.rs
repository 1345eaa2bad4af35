//! The controller as a tower layer, for axum, hyper, tonic and whatever else is a `tower::Service`.

mod end;
mod refuse;

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tidegate_engine::ClassId;
use tower_layer::Layer;
use tower_service::Service;

use crate::admission::{Admission, Permit};

#[cfg(feature = "http")]
pub use end::{AtBodyEnd, HeldBody};
pub use end::{AtResponse, End};
pub use refuse::{AdmissionError, AnswerWith, Fail, Refuse};

/// Puts an [`Admission`] before a service. The services it makes, and their clones, share the one controller.
///
/// As it comes, all requests are of the first class, a refusal is an error ([`AdmissionError::Overloaded`]), and
/// the response time of a request ends when the service's future gives the response. The body may still be on its way
/// then; [`AdmissionLayer::until_body_end`] counts until its end.
///
/// ```
/// use std::time::Duration;
/// use tidegate_stage::{Admission, AdmissionLayer, ClassId, Overloaded, Settings};
///
/// let admission = Admission::new("shop", &Settings::target(Duration::from_millis(500)).classes(2))?;
/// let layer = AdmissionLayer::new(admission)
///     .classify(|request: &http::Request<String>| ClassId(u8::from(!request.uri().path().starts_with("/checkout"))))
///     .answering(|overloaded: Overloaded| {
///         let retry_after = overloaded.retry_after_seconds();
///         http::Response::builder().status(503).header("retry-after", retry_after).body(String::new()).unwrap()
///     });
/// # Ok::<(), tidegate_stage::SettingsError>(())
/// ```
#[derive(Clone)]
pub struct AdmissionLayer<C = AllFirst, R = Fail, E = AtResponse> {
    admission: Admission,
    classify: C,
    refuse: R,
    end: PhantomData<E>,
}

/// Which class a request belongs to. Every `Fn(&Request) -> ClassId` says.
pub trait Classify<Request> {
    /// The request's class; 0 is the most important.
    fn class_of(&self, request: &Request) -> ClassId;
}

/// All requests are of the first class.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllFirst;

impl<Request> Classify<Request> for AllFirst {
    fn class_of(&self, _request: &Request) -> ClassId {
        ClassId(0)
    }
}

impl<Request, F: Fn(&Request) -> ClassId> Classify<Request> for F {
    fn class_of(&self, request: &Request) -> ClassId {
        self(request)
    }
}

impl AdmissionLayer {
    /// A layer around this controller.
    pub fn new(admission: Admission) -> Self {
        AdmissionLayer { admission, classify: AllFirst, refuse: Fail, end: PhantomData }
    }
}

impl<C, R, E> AdmissionLayer<C, R, E> {
    /// Tells classes apart. `classify` is called for each request, before anything else.
    pub fn classify<Request, F: Fn(&Request) -> ClassId>(self, classify: F) -> AdmissionLayer<F, R, E> {
        AdmissionLayer { admission: self.admission, classify, refuse: self.refuse, end: PhantomData }
    }

    /// Answers refused requests with a response, not with an error: the service keeps its error type.
    pub fn answering<F>(self, answer: F) -> AdmissionLayer<C, AnswerWith<F>, E> {
        AdmissionLayer {
            admission: self.admission,
            classify: self.classify,
            refuse: AnswerWith { answer },
            end: PhantomData,
        }
    }

    /// Counts the response time until the last frame of the response's body. A body that is dropped before its end (the
    /// client left) counts as abandoned.
    #[cfg(feature = "http")]
    pub fn until_body_end(self) -> AdmissionLayer<C, R, AtBodyEnd> {
        AdmissionLayer { admission: self.admission, classify: self.classify, refuse: self.refuse, end: PhantomData }
    }

    /// The admission controller of the layer.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }
}

impl<S, C: Clone, R: Clone, E> Layer<S> for AdmissionLayer<C, R, E> {
    type Service = Admitted<S, C, R, E>;

    fn layer(&self, inner: S) -> Self::Service {
        Admitted {
            inner,
            admission: self.admission.clone(),
            classify: self.classify.clone(),
            refuse: self.refuse.clone(),
            end: PhantomData,
        }
    }
}

/// A service behind an [`Admission`]. Made by [`AdmissionLayer`].
///
/// It is ready when the inner service is: whether a request may enter is decided when it comes, by its class.
pub struct Admitted<S, C = AllFirst, R = Fail, E = AtResponse> {
    inner: S,
    admission: Admission,
    classify: C,
    refuse: R,
    end: PhantomData<E>,
}

impl<S: Clone, C: Clone, R: Clone, E> Clone for Admitted<S, C, R, E> {
    fn clone(&self) -> Self {
        Admitted {
            inner: self.inner.clone(),
            admission: self.admission.clone(),
            classify: self.classify.clone(),
            refuse: self.refuse.clone(),
            end: PhantomData,
        }
    }
}

impl<S, Request, C, R, E> Service<Request> for Admitted<S, C, R, E>
where
    S: Service<Request>,
    C: Classify<Request>,
    E: End<S::Response>,
    R: Refuse<S::Response, S::Error>,
{
    type Response = E::Response;
    type Error = R::Error;
    type Future = AdmittedFuture<S::Future, S::Response, R, R::Error, E>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(R::from_inner)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let class = self.classify.class_of(&request);
        let state = match self.admission.admit(class) {
            Ok(permit) => State::Running { future: self.inner.call(request), permit: Some(permit) },
            Err(overloaded) => State::Refused { result: Some(self.refuse.refuse(overloaded)) },
        };
        AdmittedFuture { state, kinds: PhantomData }
    }
}

pin_project! {
    /// The response of an [`Admitted`] service.
    pub struct AdmittedFuture<F, Response, R, Error, E> {
        #[pin]
        state: State<F, Result<Response, Error>>,
        kinds: PhantomData<fn() -> (R, E)>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, Result> {
        Running {
            #[pin]
            future: F,
            permit: Option<Permit>,
        },
        Refused {
            result: Option<Result>,
        },
    }
}

impl<F, Response, Error, R, E> Future for AdmittedFuture<F, Response, R, R::Error, E>
where
    F: Future<Output = Result<Response, Error>>,
    R: Refuse<Response, Error>,
    E: End<Response>,
{
    type Output = Result<E::Response, R::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Running { future, permit } => {
                let result = ready!(future.poll(cx));
                let permit = permit.take();
                Poll::Ready(match result {
                    Ok(response) => Ok(E::hold(response, permit)),
                    Err(error) => {
                        permit.into_iter().for_each(Permit::finish);
                        Err(R::from_inner(error))
                    }
                })
            }
            StateProjection::Refused { result } => {
                let result = result.take().expect("a future is not polled after its end");
                Poll::Ready(result.map(|response| E::hold(response, None)))
            }
        }
    }
}
