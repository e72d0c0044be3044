//! A place where marks are kept, and the one way to read and change them there.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rekindle_core::high_water::{Mark, MarkPlace, Standing};
use rekindle_core::values::{Change, Changed, ValueKey, ValueKind, Values};
use rekindle_core::{BranchId, Error, ErrorKind, Result, SessionInfo, SessionKey};

/// How often a change is tried that others are quicker with.
const TRIES: usize = 64;
/// How long a caller waits for an anchor.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where marks go, to be given to [`Anchored::new`](super::Anchored::new).
#[derive(Clone)]
pub struct MarksIn {
    pub(super) name: String,
    pub(super) anchor: bool,
    pub(super) lag: Duration,
    pub(super) reading: Arc<dyn Values>,
    pub(super) writing: Arc<dyn Values>,
}

impl fmt::Debug for MarksIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MarksIn").field("name", &self.name).field("anchor", &self.anchor).finish_non_exhaustive()
    }
}

impl MarksIn {
    /// Marks in `values`, written as soon as a commit is done. `name` is for people.
    pub fn beside(name: impl Into<String>, values: Arc<dyn Values>) -> Self {
        Self { name: name.into(), anchor: false, lag: Duration::ZERO, reading: values.clone(), writing: values }
    }

    /// Marks far away, written at most once every `lag`. `writing` is used by a thread with a runtime
    /// of its own, so it shares no connections with `reading`.
    pub fn anchor(name: impl Into<String>, lag: Duration, reading: Arc<dyn Values>, writing: Arc<dyn Values>) -> Self {
        Self { name: name.into(), anchor: true, lag, reading, writing }
    }
}

/// Why a place cannot be used at the moment; shared with the thread that writes there.
pub(super) type Trouble = Arc<Mutex<Option<String>>>;

/// Notes how using a place went.
pub(super) fn note<T>(trouble: &Trouble, result: &Result<T>) {
    let text = result.as_ref().err().map(|error| error.message().to_owned());
    *trouble.lock().unwrap_or_else(PoisonError::into_inner) = text;
}

/// A mark as it stands in a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    pub bytes: Option<Bytes>,
    pub mark: Option<Mark>,
}

impl Stored {
    pub fn of(bytes: Option<Bytes>) -> Self {
        Self { mark: bytes.as_deref().and_then(Mark::decode), bytes }
    }
}

/// What becomes of a mark.
pub(super) enum Edit {
    Set(Mark),
    Delete,
}

fn key_of(session: &SessionKey) -> Result<ValueKey> {
    ValueKey::new(session.namespace.clone(), ValueKind::HIGH_WATER, session.id.as_str())
}

pub(super) async fn read(values: &dyn Values, session: &SessionKey) -> Result<Stored> {
    Ok(Stored::of(values.get(&key_of(session)?).await?))
}

/// Replaces `stored` by `mark`: what stands there afterwards, and whether that is `mark`.
pub(super) async fn replace(
    values: &dyn Values,
    session: &SessionKey,
    stored: &Stored,
    mark: Option<Mark>,
) -> Result<(Stored, bool)> {
    let bytes = mark.as_ref().map(Mark::encode);
    let change = Change { value: bytes.clone(), ..Change::delete(key_of(session)?) };
    match values.change(&change.if_is(stored.bytes.clone())).await? {
        Changed::Done => Ok((Stored { bytes, mark }, true)),
        Changed::Differs(found) => Ok((Stored::of(found), false)),
    }
}

/// Brings the mark of a session up to what the journal shows, which is looked at after the mark was
/// read. Returns the mark, if it is confirmed.
pub(super) async fn look<F: Future<Output = Result<SessionInfo>>>(
    values: &dyn Values,
    session: &SessionKey,
    mut created: bool,
    open: impl Fn() -> F,
) -> Result<Option<Stored>> {
    let mut stored = match read(values, session).await {
        // Writing begins anew where nothing can be read any more.
        Err(error) if *error.kind() == ErrorKind::Corrupt => Stored::default(),
        other => other?,
    };
    for _ in 0..TRIES {
        let info = match open().await {
            Ok(info) => info,
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                // Removed since, or before its mark was confirmed.
                if stored.mark.as_ref().is_some_and(|mark| mark.standing == Standing::New) {
                    replace(values, session, &stored, None).await?;
                }
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Some(next) = Mark::advanced(stored.mark.as_ref(), &info, created) else { return Ok(Some(stored)) };
        let (now, done) = replace(values, session, &stored, Some(next)).await?;
        stored = now;
        if done {
            created = false;
            if stored.mark.as_ref().is_some_and(Mark::is_confirmed) {
                return Ok(Some(stored));
            }
        }
    }
    Err(busy(session))
}

/// A place as callers of the store use it.
#[derive(Clone)]
pub(super) struct Place {
    pub name: String,
    pub anchor: bool,
    lag: Duration,
    values: Arc<dyn Values>,
    pub trouble: Trouble,
}

impl Place {
    pub fn new(marks: &MarksIn) -> Self {
        let MarksIn { name, anchor, lag, reading, .. } = marks.clone();
        Self { name, anchor, lag, values: reading, trouble: Trouble::default() }
    }

    pub fn describe(&self) -> MarkPlace {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        MarkPlace { place: self.name.clone(), anchor: self.anchor, lag: self.lag, trouble }
    }

    pub fn values(&self) -> &dyn Values {
        &*self.values
    }

    /// What stands there; an error if that cannot be told in time.
    pub async fn read(&self, session: &SessionKey) -> Result<Stored> {
        self.patiently(read(&*self.values, session)).await
    }

    /// Changes the mark of a session as `edit` says, given the mark as it is. Whether it did.
    pub async fn edit(&self, session: &SessionKey, edit: impl Fn(Option<&Mark>) -> Option<Edit>) -> Result<bool> {
        self.patiently(async {
            let mut stored = read(&*self.values, session).await?;
            for _ in 0..TRIES {
                let next = match edit(stored.mark.as_ref()) {
                    None => return Ok(false),
                    Some(Edit::Set(mark)) => Some(mark),
                    Some(Edit::Delete) => None,
                };
                let (now, done) = replace(&*self.values, session, &stored, next).await?;
                if done {
                    return Ok(true);
                }
                stored = now;
            }
            Err(busy(session))
        })
        .await
    }

    /// Before a session, or a branch of it, is removed on purpose.
    pub async fn depart(&self, info: &SessionInfo, branch: Option<&BranchId>) -> Result<bool> {
        self.edit(&info.header.key, |mark| Mark::departing(mark, info, branch).map(Edit::Set)).await
    }

    /// After it was removed: the mark goes, unless the journal has it again.
    pub async fn departed<F: Future<Output = Result<SessionInfo>>>(
        &self,
        session: &SessionKey,
        branch: Option<&BranchId>,
        open: impl Fn() -> F,
    ) -> Result<()> {
        self.patiently(async {
            let mut stored = read(&*self.values, session).await?;
            for _ in 0..TRIES {
                let Some(mark) = &stored.mark else { return Ok(()) };
                let next = match (open().await, branch) {
                    (Err(error), _) if *error.kind() == ErrorKind::NotFound => None,
                    (Ok(info), Some(branch)) if info.branch(branch).is_err() => match mark.without(branch) {
                        Some(next) => Some(next),
                        None => return Ok(()),
                    },
                    _ => return Ok(()),
                };
                let (now, done) = replace(&*self.values, session, &stored, next).await?;
                if done {
                    return Ok(());
                }
                stored = now;
            }
            Err(busy(session))
        })
        .await
    }

    /// After its removal was refused.
    pub async fn stay(&self, session: &SessionKey, branch: Option<&BranchId>) -> Result<bool> {
        self.edit(session, |mark| mark?.staying(branch).map(Edit::Set)).await
    }

    /// Before another session of that name is created. The mark that was there.
    pub async fn vacate(&self, session: &SessionKey) -> Result<Option<Mark>> {
        let was = self.read(session).await?.mark;
        if let Some(was) = &was {
            self.edit(session, |mark| (mark == Some(was)).then(|| Edit::Set(was.vacated()))).await?;
        }
        Ok(was)
    }

    /// After the creation was refused.
    pub async fn restore(&self, session: &SessionKey, was: &Mark) -> Result<bool> {
        let vacated = was.vacated();
        let back = Mark { number: vacated.number + 1, ..was.clone() };
        self.edit(session, |mark| (mark == Some(&vacated)).then(|| Edit::Set(back.clone()))).await
    }

    /// Sets the mark to what is there.
    pub async fn accept<F: Future<Output = Result<SessionInfo>>>(
        &self,
        session: &SessionKey,
        open: impl Fn() -> F,
    ) -> Result<()> {
        self.patiently(look(&*self.values, session, true, open)).await.map(drop)
    }

    /// Removes the mark of a session that is gone.
    pub async fn forget(&self, session: &SessionKey) -> Result<bool> {
        self.edit(session, |mark| mark.map(|_| Edit::Delete)).await
    }

    /// An anchor may be out of reach for longer than a caller can wait.
    async fn patiently<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let result = match self.anchor && tokio::runtime::Handle::try_current().is_ok() {
            false => call.await,
            true => tokio::time::timeout(PATIENCE, call).await.unwrap_or_else(|_| {
                let message = format!("{} did not answer within {} s", self.name, PATIENCE.as_secs());
                Err(Error::new(ErrorKind::StoreUnavailable, message))
            }),
        };
        note(&self.trouble, &result);
        result
    }
}

fn busy(session: &SessionKey) -> Error {
    Error::new(ErrorKind::StoreUnavailable, "others change the mark of the session all the time").on(session)
}
