//! Large values that outlived their session, or their record.
//!
//! A note among the small values of the store says which sessions have values in which bucket, and in which folder. It is
//! written before the first value of a session, marked before the session is removed, and taken away when its values are
//! gone. So a removal that stopped is found by its note, and a store that was opened without the bucket refuses to remove
//! the session. A marked folder gets no more values: a session of the same incarnation that comes back has a note and a
//! folder of its own, whatever is still being deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rekindle_core::orphans::{Finished, NotedValues, Orphan, OrphanKind, Orphans, ValuesNote};
use rekindle_core::values::{ValueKind, ValueQuery, Values};
use rekindle_core::{
    BranchId, BranchInfo, Defect, Error, ErrorKind, Namespace, Result, Section, Seq, SessionId, SessionInfo,
    SessionKey, Store, Timestamp, file_name,
};
use tokio::sync::OnceCell;

use super::backend::Listed;
use super::large_values::{LargeValues, NAMES};
use super::layout::hex;
use super::owner::{SHARED, earlier_folder_of, folder_of, namespace_folder};
use crate::names::from_file_name;
use crate::system::system_ids;
use crate::unreadable::is_about_session;

/// Whether a session is in the store.
enum There {
    Yes(Box<SessionInfo>),
    No,
    /// It is, and what it refers to or which of its name it is cannot be told, for this reason.
    Unreadable(String),
}

/// Values that nothing seems to need.
#[derive(Default)]
struct Unneeded {
    objects: Vec<Listed>,
    /// The reason why they stay all the same: what cannot be read may need them.
    kept: Option<String>,
}

impl<S: Store> LargeValues<S> {
    /// Notes that a session has values here, once in a process. Returns their folder.
    pub(super) async fn note(&self, session: &SessionKey, incarnation: &str) -> Result<String> {
        let (values, id) = self.own().await?;
        let cell = self.noted.get_or_make(&(session.clone(), incarnation.to_owned()), Default::default);
        let noted = cell.get_or_try_init(|| async {
            let (nonce, place) = (hex(&system_ids()?.nonce()), self.shown_place());
            let is_it = |noted: &&NotedValues| noted.incarnation == incarnation && noted.place == place && !noted.going;
            let chosen = Mutex::new(nonce.clone());
            ValuesNote::edit(values, session, |note| {
                let known = note.sessions.iter().filter(is_it).find_map(|noted| noted.folder.clone());
                let is_new = known.is_none();
                if is_new {
                    note.sessions.push(self.noted_values(incarnation, Some(nonce.clone())));
                }
                *chosen.lock().unwrap_or_else(PoisonError::into_inner) = known.unwrap_or_else(|| nonce.clone());
                is_new
            })
            .await?;
            Ok::<_, Error>(chosen.into_inner().unwrap_or_else(PoisonError::into_inner))
        });
        Ok(folder_of(id, session, noted.await?))
    }

    /// The small values of the store, and its id.
    async fn own(&self) -> Result<(&dyn Values, &str)> {
        let missing = || Error::new(ErrorKind::Unsupported, "the store keeps no small values");
        let values = self.store.values().ok_or_else(missing)?;
        Ok((values, self.own_id().await?.ok_or_else(missing)?))
    }

    fn noted_values(&self, incarnation: &str, folder: Option<String>) -> NotedValues {
        NotedValues { incarnation: incarnation.to_owned(), place: self.shown_place(), folder, going: false }
    }

    /// Records that a session is about to be removed, if it has values. Returns the notes that were marked.
    pub(super) async fn record_going(&self, session: &SessionKey) -> Result<Vec<NotedValues>> {
        let Some(values) = self.store.values() else { return Ok(Vec::new()) };
        let incarnation = match self.there(session).await? {
            There::No => return Ok(Vec::new()),
            There::Yes(info) => Some(info.header.incarnation),
            // Whichever it is of its name: none is left behind the removal.
            There::Unreadable(_) => None,
        };
        let is_it = |noted: &NotedValues| incarnation.as_ref().is_none_or(|is| *is == noted.incarnation);
        let is_earlier = |noted: &NotedValues| is_it(noted) && noted.folder.is_none();
        let noted = ValuesNote::read(values, session).await?.unwrap_or_default().sessions.iter().any(is_earlier);
        // From before there were notes.
        let mut unnoted = None;
        if let Some(incarnation) = incarnation.as_ref().filter(|_| !noted) {
            let earlier = self.bucket.list(&earlier_folder_of(session, incarnation), None, 1).await?;
            unnoted = (!earlier.is_empty()).then(|| self.noted_values(incarnation, None));
        }
        let marked = Mutex::new(Vec::new());
        ValuesNote::edit(values, session, |note| {
            note.sessions.extend(unnoted.clone().filter(|_| !note.sessions.iter().any(is_earlier)));
            let mut marked = marked.lock().unwrap_or_else(PoisonError::into_inner);
            marked.clear();
            for known in note.sessions.iter_mut().filter(|known| is_it(known) && !known.going) {
                known.going = true;
                marked.push(known.clone());
            }
            !marked.is_empty()
        })
        .await?;
        Ok(marked.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the record of a removal back that the store has refused.
    pub(super) async fn take_back_going(&self, session: &SessionKey, marked: &[NotedValues]) -> Result<()> {
        let Some(values) = self.store.values().filter(|_| !marked.is_empty()) else { return Ok(()) };
        ValuesNote::edit(values, session, |note| {
            let of_it = note.sessions.iter_mut().filter(|known| marked.contains(known));
            of_it.map(|known| known.going = false).count() > 0
        })
        .await
    }

    /// Deletes the values of sessions of a name whose removal is on record.
    pub(super) async fn finish_values(&self, session: &SessionKey) -> Result<Finished> {
        let mut finished = Finished::default();
        let Some(values) = self.store.values() else { return Ok(finished) };
        let note = ValuesNote::read(values, session).await?.unwrap_or_default();
        let mut going = Vec::new();
        for noted in note.sessions.into_iter().filter(|noted| noted.going) {
            going.push((self.own_objects(session, &noted).await?, noted));
        }
        if going.is_empty() {
            return Ok(finished);
        }
        // Behind the lists: what a process puts into a folder later, by a note that it remembers, stays.
        let gone = self.gone(session, values).await?;
        for (own, noted) in going.into_iter().filter(|(_, noted)| gone.contains(noted)) {
            if own.is_empty() && noted.place != self.shown_place() {
                finished.elsewhere.push(noted.place);
                continue;
            }
            let names: Vec<String> = own.iter().map(|listed| listed.name.clone()).collect();
            self.delete(&names).await?;
            finished.objects += own.len() as u64;
            finished.bytes += own.iter().map(|listed| listed.size).sum::<u64>();
            if !self.earlier_objects(session, &noted).await?.is_empty() {
                finished.kept.push(format!("{} {}", noted.place, earlier_folder_of(session, &noted.incarnation)));
                continue;
            }
            ValuesNote::edit(values, session, |note| {
                let before = note.sessions.len();
                note.sessions.retain(|known| *known != noted);
                note.sessions.len() < before
            })
            .await?;
        }
        Ok(finished)
    }

    /// The values in the folder of a note.
    async fn own_objects(&self, session: &SessionKey, noted: &NotedValues) -> Result<Vec<Listed>> {
        match (self.known_id().await?, &noted.folder) {
            (Some(id), Some(folder)) => self.objects_of(&folder_of(&id, session, folder)).await,
            _ => Ok(Vec::new()),
        }
    }

    /// The values that an earlier version wrote, if the note is of one.
    async fn earlier_objects(&self, session: &SessionKey, noted: &NotedValues) -> Result<Vec<Listed>> {
        match &noted.folder {
            Some(_) => Ok(Vec::new()),
            None => self.objects_of(&earlier_folder_of(session, &noted.incarnation)).await,
        }
    }

    /// The sessions of a name that were to be removed and are gone, by its note.
    async fn gone(&self, session: &SessionKey, values: &dyn Values) -> Result<Vec<NotedValues>> {
        let Some(note) = ValuesNote::read(values, session).await? else { return Ok(Vec::new()) };
        let mut going: Vec<NotedValues> = note.sessions.into_iter().filter(|noted| noted.going).collect();
        if !going.is_empty() {
            match self.there(session).await? {
                There::No => {}
                There::Yes(info) => going.retain(|noted| noted.incarnation != info.header.incarnation),
                There::Unreadable(_) => going.clear(),
            }
        }
        Ok(going)
    }

    async fn there(&self, session: &SessionKey) -> Result<There> {
        match self.store.open(session).await {
            Ok(info) if info.is_identified() => Ok(There::Yes(Box::new(info))),
            Ok(info) => {
                Ok(There::Unreadable(info.damage.first().map_or_else(String::new, |found| found.detail.clone())))
            }
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(There::No),
            Err(error) if is_about_session(&error) => Ok(There::Unreadable(error.message().to_owned())),
            Err(error) => Err(error),
        }
    }

    /// The values that this store has in a namespace, by session as their names have it.
    async fn values_of(&self, namespace: &Namespace) -> Result<BTreeMap<String, Vec<Listed>>> {
        let (mut found, mut after) = (BTreeMap::<_, Vec<Listed>>::new(), None::<String>);
        let Some(id) = self.known_id().await? else { return Ok(found) };
        let below = namespace_folder(&id, namespace);
        loop {
            let page = self.bucket.entries(&below, after.as_deref(), NAMES).await?;
            let full = page.len() >= NAMES;
            after = page.last().map(|listed| listed.name.clone());
            for listed in page {
                let rest = listed.name.strip_prefix(&below).and_then(|rest| rest.strip_prefix('/'));
                if let Some((id, _)) = rest.and_then(|rest| rest.split_once('/')) {
                    found.entry(id.to_owned()).or_default().push(listed);
                }
            }
            if !full {
                return Ok(found);
            }
        }
    }

    /// The values among `listed` that are old and belong to no session, or that no record of it refers to.
    async fn unneeded(
        &self,
        session: &SessionKey,
        listed: Vec<Listed>,
        older_than: Duration,
        now: Timestamp,
        unlisted: &OnceCell<Vec<Defect>>,
    ) -> Result<Unneeded> {
        let mut old: Vec<Listed> =
            listed.into_iter().filter(|listed| now.since(listed.modified) >= older_than).collect();
        let mut kept = None;
        if !old.is_empty() {
            match self.there(session).await? {
                There::No => kept = self.headless(session, unlisted).await?,
                There::Unreadable(why) => kept = Some(why),
                There::Yes(info) => {
                    let (needed, why) = self.needed(&info).await?;
                    old.retain(|listed| !needed.contains(&listed.name));
                    kept = why;
                }
            }
        }
        Ok(Unneeded { objects: old, kept })
    }

    /// Why values may be needed although there is no session of their name: records are there whose session is lost.
    async fn headless(&self, session: &SessionKey, unlisted: &OnceCell<Vec<Defect>>) -> Result<Option<String>> {
        let found = unlisted.get_or_try_init(|| self.store.unlisted(&session.namespace)).await?;
        let may_be = |defect: &&Defect| defect.session.as_ref().is_none_or(|found| found == session);
        Ok(found.iter().find(may_be).map(|defect| defect.detail.clone()))
    }

    /// The values that the records of a session refer to, and why there may be others, if a part of it is damaged.
    async fn needed(&self, info: &SessionInfo) -> Result<(BTreeSet<String>, Option<String>)> {
        let (session, mut needed) = (&info.header.key, BTreeSet::new());
        let mut why = info.damage.first().map(|damage| damage.detail.clone());
        if let Err(error) = info.branch(&BranchId::main()) {
            why.get_or_insert(error.message().to_owned());
        }
        for of_branch @ BranchInfo { branch, head, base, .. } in &info.branches {
            let start = base.map_or(of_branch.first_own(), |base| base.seq.next());
            for section in [Section::History, Section::Base] {
                let referred = match self.referred(session, branch, section, Seq::MAX).await {
                    Err(error) if is_about_session(&error) => {
                        why.get_or_insert(error.message().to_owned());
                        continue;
                    }
                    other => other?,
                };
                let is_cut = section == Section::History
                    && start <= head.seq
                    && (referred.first.is_none_or(|first| first > start) || referred.last < head.seq);
                if referred.is_damaged || is_cut {
                    why.get_or_insert(format!("records of branch `{branch}` are damaged"));
                }
                needed.extend(referred.names);
            }
        }
        Ok((needed, why))
    }

    /// Removals on record whose values are still there, or in a bucket that is not this one.
    async fn recorded(&self, namespace: &Namespace) -> Result<Vec<Orphan>> {
        let Some(values) = self.store.values() else { return Ok(Vec::new()) };
        let mut query = ValueQuery::new(namespace.clone(), ValueKind::LARGE_VALUES);
        let mut found = Vec::new();
        loop {
            let page = values.list(&query).await?;
            for (id, _) in &page.values {
                let session = SessionKey::new(namespace.clone(), SessionId::new(id.as_str())?);
                for noted in self.gone(&session, values).await? {
                    let objects = self.own_objects(&session, &noted).await?;
                    let earlier = self.earlier_objects(&session, &noted).await?;
                    let elsewhere = objects.is_empty() && noted.place != self.shown_place();
                    if !objects.is_empty() || earlier.is_empty() {
                        let mut orphan = self.orphan(Some(session.clone()), objects, true);
                        if elsewhere {
                            orphan.place = noted.place;
                        }
                        found.push(orphan);
                    }
                    if !earlier.is_empty() {
                        let kept = Some(SHARED.to_owned());
                        found.push(Orphan { kept, ..self.orphan(Some(session.clone()), earlier, true) });
                    }
                }
            }
            match page.values.last().filter(|_| page.more) {
                Some((last, _)) => query = query.with_after(last.clone()),
                None => return Ok(found),
            }
        }
    }

    async fn objects_of(&self, folder: &str) -> Result<Vec<Listed>> {
        let mut all: Vec<Listed> = Vec::new();
        loop {
            let after = all.last().map(|listed| listed.name.clone());
            let page = self.bucket.entries(folder, after.as_deref(), NAMES).await?;
            let full = page.len() >= NAMES;
            all.extend(page);
            if !full {
                return Ok(all);
            }
        }
    }

    fn orphan(&self, session: Option<SessionKey>, objects: Vec<Listed>, recorded: bool) -> Orphan {
        let bytes = objects.iter().map(|listed| listed.size).sum();
        let names = objects.into_iter().map(|listed| listed.name).collect();
        Orphan { kind: OrphanKind::LargeValues, session, place: self.shown_place(), names, bytes, recorded, kept: None }
    }

    /// Clears values that no removal has on record, if they still belong to nothing.
    async fn clear_orphans(&self, orphan: &Orphan, older_than: Duration) -> Result<Finished> {
        let Some(session) = &orphan.session else { return Ok(Finished::default()) };
        let (now, unlisted) = (self.bucket.now().await?, OnceCell::new());
        let mut finished = Finished::default();
        for (id, listed) in self.values_of(&session.namespace).await? {
            if id != file_name(session.id.as_str()) {
                continue;
            }
            let Unneeded { objects: mut orphans, kept } =
                self.unneeded(session, listed, older_than, now, &unlisted).await?;
            if kept.is_some() {
                continue;
            }
            orphans.retain(|listed| orphan.names.contains(&listed.name));
            let names: Vec<String> = orphans.iter().map(|listed| listed.name.clone()).collect();
            self.delete(&names).await?;
            let bytes = orphans.iter().map(|listed| listed.size).sum();
            finished.add(Finished { objects: names.len() as u64, bytes, ..Finished::default() });
        }
        Ok(finished)
    }
}

#[async_trait]
impl<S: Store> Orphans for LargeValues<S> {
    async fn is_unfinished(&self, session: &SessionKey) -> Result<bool> {
        if let Some(values) = self.store.values()
            && !self.gone(session, values).await?.is_empty()
        {
            return Ok(true);
        }
        match self.store.orphans() {
            Some(inner) => inner.is_unfinished(session).await,
            None => Ok(false),
        }
    }

    async fn finish(&self, session: &SessionKey) -> Result<Finished> {
        let mut finished = self.finish_values(session).await.map_err(|error| error.during("remove").on(session))?;
        if let Some(inner) = self.store.orphans() {
            finished.add(inner.finish(session).await?);
        }
        Ok(finished)
    }

    async fn find(&self, namespace: &Namespace, older_than: Duration) -> Result<Vec<Orphan>> {
        let mut found = match self.store.orphans() {
            Some(inner) => inner.find(namespace, older_than).await?,
            None => Vec::new(),
        };
        let recorded = self.recorded(namespace).await?;
        let known: BTreeSet<String> = recorded.iter().flat_map(|orphan| orphan.names.iter().cloned()).collect();
        found.extend(recorded);
        let (now, unlisted) = (self.bucket.now().await?, OnceCell::new());
        for (id, mut listed) in self.values_of(namespace).await? {
            listed.retain(|listed| !known.contains(&listed.name));
            // A name that is too long to be read back belongs to a session that cannot be looked for.
            let Some(id) = from_file_name(&id).and_then(|id| SessionId::new(id).ok()) else { continue };
            let session = SessionKey::new(namespace.clone(), id);
            let Unneeded { objects, kept } = self.unneeded(&session, listed, older_than, now, &unlisted).await?;
            if !objects.is_empty() {
                found.push(Orphan { kept, ..self.orphan(Some(session), objects, false) });
            }
        }
        Ok(found)
    }

    async fn clear(&self, orphan: &Orphan, older_than: Duration) -> Result<Finished> {
        match (orphan.kind, &orphan.session) {
            (OrphanKind::LargeValues, Some(session)) if orphan.recorded => self.finish_values(session).await,
            (OrphanKind::LargeValues, _) => self.clear_orphans(orphan, older_than).await,
            _ => match self.store.orphans() {
                Some(inner) => inner.clear(orphan, older_than).await,
                None => Ok(Finished::default()),
            },
        }
    }

    fn large_values(&self) -> Option<String> {
        Some(self.shown_place())
    }
}
