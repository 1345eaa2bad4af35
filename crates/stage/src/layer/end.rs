//! End of a request's response time: with the response, or with the last frame of its body.

use crate::admission::Permit;

/// When the response time of a request ends.
pub trait End<Inner> {
    /// The response as the caller gets it.
    type Response;

    /// The service gave its response. Without a permit the request was refused.
    fn hold(response: Inner, permit: Option<Permit>) -> Self::Response;
}

/// It ends when the service's future gives the response.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtResponse;

impl<Inner> End<Inner> for AtResponse {
    type Response = Inner;

    fn hold(response: Inner, permit: Option<Permit>) -> Inner {
        permit.into_iter().for_each(Permit::finish);
        response
    }
}

#[cfg(feature = "http")]
pub use body::{AtBodyEnd, HeldBody};

#[cfg(feature = "http")]
mod body {
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use http_body::{Body, Frame, SizeHint};
    use pin_project_lite::pin_project;

    use super::{End, Permit};

    /// It ends with the last frame of the response's body.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct AtBodyEnd;

    impl<B: Body> End<http::Response<B>> for AtBodyEnd {
        type Response = http::Response<HeldBody<B>>;

        fn hold(response: http::Response<B>, permit: Option<Permit>) -> Self::Response {
            response.map(|body| {
                let mut held = HeldBody { permit, body };
                // Nobody polls an empty body.
                held.finish_if_ended();
                held
            })
        }
    }

    pin_project! {
        /// A body that holds its request's permit until its end. Dropped before, the request counts as abandoned.
        pub struct HeldBody<B> {
            permit: Option<Permit>,
            #[pin]
            body: B,
        }
    }

    impl<B: Body> HeldBody<B> {
        fn finish_if_ended(&mut self) {
            if self.body.is_end_stream() {
                self.permit.take().into_iter().for_each(Permit::finish);
            }
        }
    }

    impl<B: Body> Body for HeldBody<B> {
        type Data = B::Data;
        type Error = B::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
            let mut this = self.project();
            let frame = ready!(this.body.as_mut().poll_frame(cx));
            if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
                this.permit.take().into_iter().for_each(Permit::finish);
            }
            Poll::Ready(frame)
        }

        fn is_end_stream(&self) -> bool {
            self.body.is_end_stream()
        }

        fn size_hint(&self) -> SizeHint {
            self.body.size_hint()
        }
    }

    impl<B: Default> Default for HeldBody<B> {
        fn default() -> Self {
            HeldBody { permit: None, body: B::default() }
        }
    }
}
