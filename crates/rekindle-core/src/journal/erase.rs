//! Erasure: a session is removed, its data key is destroyed, and a receipt says so.

use serde::{Deserialize, Serialize};

use super::Journal;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Namespace, SessionId, SessionKey};
use crate::orphans::{Finished, PendingErasure, PendingErasures, ValuesNote};
use crate::position::{Hash, Head, Position};
use crate::session::{BranchInfo, SessionHeader, SessionInfo};
use crate::store::{Removal, Removed};
use crate::time::Timestamp;
use crate::values::{ValueKind, ValueQuery};

/// The version of receipts.
const VERSION: u32 = 1;

/// What a receipt says about what it cannot prove.
const NOTICE: &str = "Whoever has an older backup of the key table and the main key can read backups of the session's \
                      frames. The erasure is complete when the backups of the key table that were made before it \
                      have expired, here and in every place listed under copies.";

/// Says that a session was erased, and what was there: enough to check the order and completeness of whatever
/// copy of its frames turns up, although nobody can read it any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The version of this form.
    pub rekindle_receipt: u32,
    /// The session.
    pub session: SessionKey,
    /// Tells it from others of the same name.
    pub incarnation: String,
    /// The start of its chain.
    pub genesis: Hash,
    /// When it was erased, by the clock of whoever did.
    pub erased_at: Timestamp,
    /// Who erased it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Its branches.
    pub branches: Vec<ReceiptBranch>,
    /// The data key that was destroyed; none if the session was not encrypted with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_key: Option<ReceiptKey>,
    /// What the receipt cannot prove.
    pub notice: String,
    /// The signature over everything else; none if there is no main key to sign with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<ReceiptSignature>,
}

/// A branch of an erased session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptBranch {
    /// Its name.
    pub branch: BranchId,
    /// Where it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Position>,
    /// The hash it began with, if it was still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Hash>,
    /// Up to where it had been compacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Head>,
    /// Where it ended.
    pub head: Head,
}

/// A data key that was destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptKey {
    /// Its id.
    pub id: String,
    /// The stores it had been copied to: it must be destroyed there too.
    pub copies: Vec<String>,
}

/// The signature of a receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptSignature {
    /// The id of the main key.
    pub key: String,
    /// The keyed hash of the receipt without this field.
    pub hash: Hash,
}

impl Journal {
    /// Removes a session and destroys its data key, and gives a signed receipt. It is recorded first: if it stops in
    /// between, repeating it finishes and gives the receipt, and [`Journal::finish_removal`] finishes without one.
    pub async fn erase(&self, session: &SessionKey, author: Option<String>) -> Result<(Receipt, Removed)> {
        let context = |error: Error| error.during("erase").on(session);
        let info = match self.open_stored(session).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                let receipt = self.finish_erasure(session).await.map_err(context)?;
                return Ok((receipt.ok_or_else(|| context(error))?, Removed::default()));
            }
            other => other.map_err(context)?,
        };
        self.refuse_stranded(&info.header).await.map_err(context)?;
        let mut branches = Vec::with_capacity(info.branches.len());
        for branch in &info.branches {
            branches.push(self.receipt_branch(&info, branch).await);
        }
        let heads = info.heads();
        let SessionHeader { key, incarnation, genesis, .. } = info.header.clone();
        let mut receipt = Receipt {
            rekindle_receipt: VERSION,
            session: key,
            incarnation,
            genesis,
            erased_at: self.clock.now(),
            author,
            branches,
            data_key: self.described_key(&info.header).await.map_err(context)?,
            notice: NOTICE.to_owned(),
            signature: None,
        };
        self.record_erasure(&info.header, Some(&receipt)).await.map_err(context)?;
        // Nothing goes that the receipt does not tell.
        let removal = Removal::SessionAt { session: session.clone(), heads };
        let removed = self.carry_out(&info.header, &removal).await.map_err(context)?;
        receipt.data_key = self.destroy_key(&info.header).await.map_err(context)?.or(receipt.data_key);
        // Everything is done: a record that stays says nothing new, and the receipt must not be lost for it.
        let _ = self.forget_erasure(&info.header).await;
        Ok((self.signed(receipt)?, removed))
    }

    /// Returns whether a receipt was signed with a key of this journal and not changed since. `KeyMissing` if the key
    /// is not there, `Unverified` if it has no signature.
    pub fn check_receipt(&self, receipt: &Receipt) -> Result<bool> {
        let Some(signature) = &receipt.signature else {
            return Err(Error::new(ErrorKind::Unverified, "the receipt is not signed"));
        };
        let Some(mut signer) = self.codec.signer_of(&signature.key) else {
            let message = format!("the receipt is signed with the key `{}`, which was not given", signature.key);
            return Err(Error::new(ErrorKind::KeyMissing { key: signature.key.clone() }, message));
        };
        let unsigned = Receipt { signature: None, ..receipt.clone() };
        Ok(signer.sign(&[b"receipt", &written(&unsigned)?]) == signature.hash)
    }

    /// What is different between a session and the one a receipt tells of, for people; nothing if it is that one,
    /// whole.
    pub async fn compare_with_receipt(&self, info: &SessionInfo, receipt: &Receipt) -> Vec<String> {
        let mut differences = Vec::new();
        if info.header.genesis != receipt.genesis || info.header.incarnation != receipt.incarnation {
            differences.push("it is another session of the same name".to_owned());
        }
        for told in &receipt.branches {
            match info.branch(&told.branch) {
                Err(_) => differences.push(format!("branch `{}` is not there", told.branch)),
                Ok(branch) if branch.head != told.head => differences.push(format!(
                    "branch `{}` ends at record {}, not at {}",
                    told.branch, branch.head.seq, told.head.seq
                )),
                Ok(branch) if self.receipt_branch(info, branch).await != *told => {
                    differences.push(format!("branch `{}` begins elsewhere", told.branch));
                }
                Ok(_) => {}
            }
        }
        let told = |branch: &&BranchInfo| receipt.branches.iter().any(|told| told.branch == branch.branch);
        for branch in info.branches.iter().filter(|branch| !told(branch)) {
            differences.push(format!("the receipt knows no branch `{}`", branch.branch));
        }
        differences
    }

    async fn receipt_branch(&self, info: &SessionInfo, branch: &BranchInfo) -> ReceiptBranch {
        ReceiptBranch {
            branch: branch.branch.clone(),
            parent: branch.parent.clone(),
            start: self.stored_start(info, branch).await.ok().flatten(),
            base: branch.base,
            head: branch.head,
        }
    }

    fn signed(&self, mut receipt: Receipt) -> Result<Receipt> {
        if let Some(mut signer) = self.codec.signer() {
            let hash = signer.sign(&[b"receipt", &written(&receipt)?]);
            receipt.signature = Some(ReceiptSignature { key: signer.id().to_owned(), hash });
        }
        Ok(receipt)
    }

    /// Removes a session, then its data key. If there is one, the removal is recorded first: what stops in between is
    /// finished by [`Journal::finish_removal`].
    pub(super) async fn remove_session(&self, session: &SessionKey, removal: Removal) -> Result<Removed> {
        let header = match self.store.open(session).await {
            Ok(info) => Some(info.header),
            Err(error) if *error.kind() == ErrorKind::NotFound => None,
            // What is damaged can be removed too.
            Err(error) if *error.kind() == ErrorKind::Corrupt => None,
            Err(error) => return Err(error),
        };
        let Some(header) = header else {
            let removed = self.store.remove(&removal).await?;
            self.finish_removal(session).await?;
            return Ok(removed);
        };
        self.refuse_stranded(&header).await?;
        let has_key = self.described_key(&header).await?.is_some();
        if has_key {
            self.record_erasure(&header, None).await?;
        }
        let removed = self.carry_out(&header, &removal).await?;
        if has_key {
            self.destroy_key(&header).await?;
            self.forget_erasure(&header).await?;
        }
        Ok(removed)
    }

    /// Carries out a removal that is on record. One that the store refuses is taken off the record.
    async fn carry_out(&self, header: &SessionHeader, removal: &Removal) -> Result<Removed> {
        let removed = self.store.remove(removal).await;
        if let Err(error) = &removed
            && matches!(error.kind(), ErrorKind::Stale | ErrorKind::Protected)
        {
            // If this fails too, nothing happens either: the session is there.
            let _ = self.forget_erasure(header).await;
        }
        self.codec.forget(&header.key);
        removed
    }

    /// An error if large values of a session would stay because the store was opened without the bucket they are in.
    pub(super) async fn refuse_stranded(&self, header: &SessionHeader) -> Result<()> {
        let Some(values) = self.store.values() else { return Ok(()) };
        if self.store.orphans().is_some_and(|orphans| orphans.large_values().is_some()) {
            return Ok(());
        }
        let note = ValuesNote::read(values, &header.key).await?;
        match note.as_ref().and_then(|note| note.of(&header.incarnation)) {
            Some(noted) => {
                let message = format!("large values of the session are in {} and would stay there", noted.place);
                Err(Error::new(ErrorKind::Unsupported, message)
                    .hint("open the store with that bucket: set the key `large_values`, or `StoreOptions`' setting"))
            }
            None => Ok(()),
        }
    }

    async fn record_erasure(&self, header: &SessionHeader, receipt: Option<&Receipt>) -> Result<()> {
        let Some(values) = self.store.values() else { return Ok(()) };
        let (incarnation, receipt) = (header.incarnation.clone(), receipt.cloned().map(Box::new));
        PendingErasures::record(values, &header.key, &PendingErasure { incarnation, receipt }).await
    }

    pub(super) async fn forget_erasure(&self, header: &SessionHeader) -> Result<()> {
        let Some(values) = self.store.values() else { return Ok(()) };
        PendingErasures::forget(values, &header.key, &header.incarnation).await
    }

    /// Returns whether the removal of a session was begun and is not finished. Changes nothing.
    pub async fn is_removal_unfinished(&self, session: &SessionKey) -> Result<bool> {
        if let Some(orphans) = self.store.orphans()
            && orphans.is_unfinished(session).await?
        {
            return Ok(true);
        }
        Ok(!self.gone_erasures(session).await?.is_empty())
    }

    /// Finishes the removal of a session that was begun and is on record; does nothing if none is.
    pub async fn finish_removal(&self, session: &SessionKey) -> Result<Finished> {
        let mut finished = match self.store.orphans() {
            Some(orphans) => orphans.finish(session).await?,
            None => Finished::default(),
        };
        for erasure in self.gone_erasures(session).await? {
            finished.objects += u64::from(self.finish_one(session, &erasure).await?.is_some());
        }
        Ok(finished)
    }

    /// The sessions of a namespace whose data keys are still to be destroyed, because their removal stopped.
    pub async fn unfinished_erasures(&self, namespace: &Namespace) -> Result<Vec<SessionKey>> {
        let Some(values) = self.store.values() else { return Ok(Vec::new()) };
        let mut query = ValueQuery::new(namespace.clone(), ValueKind::REMOVAL);
        let mut found = Vec::new();
        loop {
            let page = values.list(&query).await?;
            for (id, _) in &page.values {
                let session = SessionKey::new(namespace.clone(), SessionId::new(id.as_str())?);
                if !self.gone_erasures(&session).await?.is_empty() {
                    found.push(session);
                }
            }
            match page.values.last().filter(|_| page.more) {
                Some((last, _)) => query = query.with_after(last.clone()),
                None => return Ok(found),
            }
        }
    }

    /// The erasures on record of a session's name whose sessions are gone.
    async fn gone_erasures(&self, session: &SessionKey) -> Result<Vec<PendingErasure>> {
        let Some(values) = self.store.values() else { return Ok(Vec::new()) };
        let mut pending = PendingErasures::read(values, session).await?.erasures;
        if pending.is_empty() {
            return Ok(pending);
        }
        match self.store.open(session).await {
            // Any of them may be of the session that is there.
            Ok(info) if !info.is_identified() => pending.clear(),
            Ok(info) => pending.retain(|erasure| erasure.incarnation != info.header.incarnation),
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(pending)
    }

    /// Finishes the erasure of a session that is gone; its receipt, if one was asked for.
    async fn finish_erasure(&self, session: &SessionKey) -> Result<Option<Receipt>> {
        let with_receipt = |erasure: &PendingErasure| erasure.receipt.is_some();
        let Some(erasure) = self.gone_erasures(session).await?.into_iter().rev().find(with_receipt) else {
            return Ok(None);
        };
        if let Some(orphans) = self.store.orphans() {
            orphans.finish(session).await?;
        }
        self.finish_one(session, &erasure).await?;
        erasure.receipt.map(|receipt| self.signed(*receipt)).transpose()
    }

    async fn finish_one(&self, session: &SessionKey, erasure: &PendingErasure) -> Result<Option<ReceiptKey>> {
        let header = SessionHeader { incarnation: erasure.incarnation.clone(), ..SessionHeader::new(session.clone()) };
        self.codec.forget(session);
        let destroyed = self.destroy_key(&header).await?;
        self.forget_erasure(&header).await?;
        Ok(destroyed)
    }
}

fn written(receipt: &Receipt) -> Result<Vec<u8>> {
    serde_json::to_vec(receipt).map_err(|error| Error::invalid("the receipt cannot be written").because(error))
}
