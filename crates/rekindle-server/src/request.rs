//! What happens to every request before anybody else sees it: is it admitted, does it fit, does it arrive
//! in time; and does its answer begin in time.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use rekindle::Identity;

use crate::access::{Access, Denial, Place};
use crate::crowd::Member;
use crate::limits::Limits;

/// What requests are measured by.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) place: Place,
    pub(crate) access: Access,
    pub(crate) limits: Limits,
}

/// Lets a request through to what is served, whole and of a size that was agreed on, or says why not.
/// It carries the identity of the caller among its extensions.
pub(crate) async fn pass(
    gate: &Gate,
    peer: Option<&Identity>,
    member: &Member,
    request: Request,
    served: &TowerToHyperService<Router>,
) -> Response {
    let identity = match gate.access.admit(gate.place, peer, request.uri(), request.headers()) {
        Ok(identity) => identity,
        Err(denial) => return denied(denial),
    };
    member.known();
    let mut request = match whole(request, &gate.limits).await {
        Ok(request) => request,
        Err((status, message)) => return refused(status, message),
    };
    request.extensions_mut().insert(identity);
    match tokio::time::timeout(gate.limits.answering, served.call(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(never)) => match never {},
        Err(_) => refused(StatusCode::GATEWAY_TIMEOUT, "the answer took too long; it may still have been carried out"),
    }
}

/// The request with its whole body, which is never larger than the limit and never slower either.
async fn whole(request: Request, limits: &Limits) -> Result<Request, (StatusCode, &'static str)> {
    const TOO_LARGE: (StatusCode, &str) =
        (StatusCode::PAYLOAD_TOO_LARGE, "the request is larger than this server takes");
    let (head, body) = request.into_parts();
    let announced =
        head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limits.body as u64) {
        return Err(TOO_LARGE);
    }
    let bytes: Bytes = match tokio::time::timeout(limits.reading, Limited::new(body, limits.body).collect()).await {
        Err(_) => return Err((StatusCode::REQUEST_TIMEOUT, "the request took too long to arrive")),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(TOO_LARGE),
        Ok(Err(_)) => return Err((StatusCode::BAD_REQUEST, "the request ended before it was whole")),
        Ok(Ok(body)) => body.to_bytes(),
    };
    Ok(Request::from_parts(head, Body::from(bytes)))
}

fn denied(Denial(status, message): Denial) -> Response {
    let mut response = refused(status, message);
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Answers where nothing is served.
pub(crate) async fn nothing_here() -> Response {
    refused(StatusCode::NOT_FOUND, "there is nothing here; the Model Context Protocol is at /mcp")
}

/// A refusal as plain text. What is left of the request is not waited for.
pub(crate) fn refused(status: StatusCode, message: &'static str) -> Response {
    (status, [(header::CONNECTION, "close")], message).into_response()
}
