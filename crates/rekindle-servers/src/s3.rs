//! An S3 inside the test's own process: conditional writes are exact, because everything happens
//! under one lock, and everything that can go wrong on the way can be made to.

use std::collections::BTreeMap;
use std::fmt;
use std::io::BufReader;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::http::{Answer, Request};

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum S3Fault {
    /// Nothing.
    None,
    /// It is not carried out: 503 SlowDown.
    SlowDown,
    /// It is carried out, and answered with 500.
    ReplyLost,
    /// It is not carried out, and the connection is cut.
    Cut,
    /// It is carried out, and the connection is cut.
    CutBehind,
    /// It takes this long.
    Slow(Duration),
}

/// A request as it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Request {
    /// `GET`, `PUT`, `HEAD`, `DELETE`, or `LIST` and `DELETES` for several at once.
    pub method: String,
    /// The name of the object, or the prefix of a list.
    pub key: String,
}

type BucketAndKey = (String, String);
/// Content, and seconds since 1970.
type Object = (Arc<[u8]>, u64);
type Plan = Box<dyn FnMut(&S3Request) -> S3Fault + Send>;

#[derive(Default)]
struct Inner {
    objects: BTreeMap<BucketAndKey, Object>,
    requests: Vec<S3Request>,
    plan: Option<Plan>,
    /// Its clock, in seconds ahead of this machine's.
    ahead: i64,
    /// Its answers have no dates.
    undated: bool,
    /// Headers of conditions that are not looked at.
    ignored: Vec<&'static str>,
}

/// An S3 in this process. It lives until the process ends.
#[derive(Clone)]
pub struct S3 {
    port: u16,
    inner: Arc<Mutex<Inner>>,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3").field("port", &self.port).finish_non_exhaustive()
    }
}

impl S3 {
    /// One for the whole process: for tests that break nothing.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<S3> = LazyLock::new(S3::start);
        &SHARED
    }

    /// Starts a new one.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self { port: listener.local_addr().unwrap().port(), inner: Arc::default() };
        let inner = server.inner.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let inner = inner.clone();
                std::thread::spawn(move || serve(stream, &inner));
            }
        });
        server
    }

    /// The URL of a bucket with everything a client needs. Every bucket exists but `missing`.
    pub fn url(&self, bucket: &str) -> String {
        bucket_url(bucket, self.port)
    }

    /// The port it listens on, for a [`Proxy`](crate::Proxy).
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Asks `plan` about every request from now on.
    pub fn set_faults(&self, plan: impl FnMut(&S3Request) -> S3Fault + Send + 'static) {
        self.lock().plan = Some(Box::new(plan));
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.lock().plan = None;
    }

    /// Puts its clock ahead of this machine's.
    pub fn set_ahead(&self, seconds: i64) {
        self.lock().ahead = seconds;
    }

    /// Ignores these conditions from now on, as services without conditional writes do: `if-none-match`,
    /// `if-match`.
    pub fn ignore_conditions(&self, headers: &[&'static str]) {
        self.lock().ignored = headers.to_vec();
    }

    /// Leaves the date out of its answers.
    pub fn set_undated(&self) {
        self.lock().undated = true;
    }

    /// The requests since this was last asked.
    pub fn take_requests(&self) -> Vec<S3Request> {
        std::mem::take(&mut self.lock().requests)
    }

    /// How many bytes all objects of a bucket have.
    pub fn stored_bytes(&self, bucket: &str) -> u64 {
        let inner = self.lock();
        inner
            .objects
            .iter()
            .filter(|((found, _), _)| found == bucket)
            .map(|(_, (content, _))| content.len() as u64)
            .sum()
    }

    /// The names of all objects of a bucket.
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        let inner = self.lock();
        inner.objects.keys().filter(|(found, _)| found == bucket).map(|(_, key)| key.clone()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

/// The URL of a bucket behind a port of this machine, with everything a client needs.
pub(crate) fn bucket_url(bucket: &str, port: u16) -> String {
    format!(
        "s3://{bucket}?endpoint=http://127.0.0.1:{port}&allow_http=true&aws_access_key_id=me&aws_secret_access_key=secret"
    )
}

fn serve(stream: TcpStream, inner: &Mutex<Inner>) {
    let _ = stream.set_nodelay(true);
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    while let Ok(Some(request)) = Request::read(&mut reader) {
        let (bucket, key) = bucket_and_key(&request);
        let seen = seen(&request);
        let fault = {
            let mut inner = inner.lock().unwrap();
            inner.requests.push(seen.clone());
            inner.plan.as_mut().map_or(S3Fault::None, |plan| plan(&seen))
        };
        if let S3Fault::Slow(time) = fault {
            std::thread::sleep(time);
        }
        let answer = match fault {
            S3Fault::SlowDown => error(503, "SlowDown"),
            S3Fault::Cut => break,
            _ => inner.lock().unwrap().answer(&request, &seen.method, bucket, key),
        };
        let answer = match fault {
            S3Fault::ReplyLost => error(500, "InternalError"),
            S3Fault::CutBehind => break,
            _ => answer,
        };
        let mut answer = if request.method == "HEAD" { answer.without_body() } else { answer };
        let date = { inner.lock().unwrap().date() };
        answer.headers.extend(date.map(|date| ("date".into(), date)));
        if answer.write(&mut writer).is_err() {
            break;
        }
    }
    let _ = writer.shutdown(Shutdown::Both);
}

fn bucket_and_key(request: &Request) -> (&str, &str) {
    let path = request.path.trim_start_matches('/');
    path.split_once('/').unwrap_or((path, ""))
}

/// The request as tests see it.
pub(crate) fn seen(request: &Request) -> S3Request {
    let (_, key) = bucket_and_key(request);
    let (method, key) = match request.method.as_str() {
        "GET" if request.parameter("list-type").is_some() => ("LIST", request.parameter("prefix").unwrap_or_default()),
        "POST" => ("DELETES", ""),
        method => (method, key),
    };
    S3Request { method: method.to_owned(), key: key.to_owned() }
}

/// An answer with an error as S3 words them.
pub(crate) fn error(status: u16, code: &str) -> Answer {
    Answer::xml(status, format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>"))
}

impl Inner {
    fn answer(&mut self, request: &Request, method: &str, bucket: &str, key: &str) -> Answer {
        if bucket == "missing" {
            return error(404, "NoSuchBucket");
        }
        let at = (bucket.to_owned(), key.to_owned());
        match method {
            "PUT" if self.condition(request, "if-none-match") == Some("*") && self.objects.contains_key(&at) => {
                error(412, "PreconditionFailed")
            }
            "PUT"
                if self.condition(request, "if-match").is_some_and(|tag| self.tag_of(&at).as_deref() != Some(tag)) =>
            {
                error(412, "PreconditionFailed")
            }
            "PUT" => {
                let content: Arc<[u8]> = request.body.clone().into();
                let tag = tag(&content);
                self.objects.insert(at, (content, self.now()));
                Answer { headers: vec![("etag".into(), tag)], ..Answer::new(200) }
            }
            "GET" | "HEAD" => match self.objects.get(&at) {
                Some((content, modified)) => found(request, content, *modified),
                None => error(404, "NoSuchKey"),
            },
            "DELETE" => {
                self.objects.remove(&at);
                Answer::new(204)
            }
            "DELETES" => self.delete_several(bucket, &String::from_utf8_lossy(&request.body)),
            "LIST" => self.list(request, bucket),
            _ => error(405, "MethodNotAllowed"),
        }
    }

    fn condition<'a>(&self, request: &'a Request, header: &'static str) -> Option<&'a str> {
        request.header(header).filter(|_| !self.ignored.contains(&header))
    }

    fn tag_of(&self, at: &BucketAndKey) -> Option<String> {
        self.objects.get(at).map(|(content, _)| tag(content))
    }

    fn now(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        now.saturating_add_signed(self.ahead)
    }

    fn date(&self) -> Option<String> {
        (!self.undated).then(|| http_date(self.now()))
    }

    fn delete_several(&mut self, bucket: &str, body: &str) -> Answer {
        let mut xml = String::from("<DeleteResult>");
        for part in body.split("<Key>").skip(1) {
            let key = part.split("</Key>").next().unwrap_or_default();
            self.objects.remove(&(bucket.to_owned(), key.to_owned()));
            xml.push_str(&format!("<Deleted><Key>{key}</Key></Deleted>"));
        }
        xml.push_str("</DeleteResult>");
        Answer::xml(200, xml)
    }

    fn list(&self, request: &Request, bucket: &str) -> Answer {
        let prefix = request.parameter("prefix").unwrap_or_default();
        let after = request.parameter("continuation-token").or(request.parameter("start-after")).unwrap_or_default();
        let limit: usize = request.parameter("max-keys").and_then(|keys| keys.parse().ok()).unwrap_or(1_000);
        let mut matching = self
            .objects
            .iter()
            .filter(|((found, key), _)| found == bucket && key.starts_with(prefix) && key.as_str() > after);
        let mut xml = String::from("<ListBucketResult>");
        let mut last = "";
        for ((_, key), (content, modified)) in matching.by_ref().take(limit) {
            last = key;
            xml.push_str(&format!(
                "<Contents><Key>{key}</Key><Size>{}</Size><LastModified>{}</LastModified><ETag>{}</ETag></Contents>",
                content.len(),
                iso(*modified),
                tag(content).replace('"', "&quot;")
            ));
        }
        if matching.next().is_some() {
            xml.push_str(&format!("<NextContinuationToken>{last}</NextContinuationToken>"));
        }
        xml.push_str("</ListBucketResult>");
        Answer::xml(200, xml)
    }
}

fn found(request: &Request, content: &[u8], modified: u64) -> Answer {
    let mut headers = vec![("etag".into(), tag(content)), ("last-modified".into(), http_date(modified))];
    let range = request.header("range").and_then(|range| {
        let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?))
    });
    let (status, body) = match range {
        Some((from, _)) if from >= content.len() => return error(416, "InvalidRange"),
        Some((from, to)) => {
            let to = to.min(content.len() - 1);
            headers.push(("content-range".into(), format!("bytes {from}-{to}/{}", content.len())));
            (206, &content[from..=to])
        }
        None => (200, content),
    };
    Answer { status, headers, body: body.to_vec(), length: None }
}

fn tag(content: &[u8]) -> String {
    // FNV-1a: enough to tell contents apart.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("\"{:016x}\"", content.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Year, month, day of days since 1970.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

fn iso(seconds: u64) -> String {
    let ((year, month, day), time) = (civil(seconds / 86_400), seconds % 86_400);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.000Z", time / 3_600, time / 60 % 60, time % 60)
}

fn http_date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let ((year, month, day), time) = (civil(seconds / 86_400), seconds % 86_400);
    let (weekday, month) = (DAYS[(seconds / 86_400 % 7) as usize], MONTHS[month as usize - 1]);
    format!("{weekday}, {day:02} {month} {year:04} {:02}:{:02}:{:02} GMT", time / 3_600, time / 60 % 60, time % 60)
}
