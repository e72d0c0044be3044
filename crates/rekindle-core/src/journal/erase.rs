//! Erasure: a session is removed, its data key is destroyed, and a receipt says so.

use serde::{Deserialize, Serialize};

use super::Journal;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, SessionKey};
use crate::position::{Hash, Head, Position};
use crate::session::{BranchInfo, SessionHeader, SessionInfo};
use crate::store::{Removal, Removed};
use crate::time::Timestamp;

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
    /// Removes a session and destroys its data key, and gives a signed receipt. If it fails behind the removal,
    /// repeating it with the session gone is `NotFound`: [`Journal::destroy_orphaned_keys`] completes it.
    pub async fn erase(&self, session: &SessionKey, author: Option<String>) -> Result<(Receipt, Removed)> {
        let context = |error: Error| error.during("erase").on(session);
        let info = self.open_stored(session).await.map_err(context)?;
        let mut branches = Vec::with_capacity(info.branches.len());
        for branch in &info.branches {
            branches.push(self.receipt_branch(&info, branch).await);
        }
        // Nothing goes that the receipt does not tell.
        let removal = Removal::SessionAt { session: session.clone(), heads: info.heads() };
        let removed = self.store.remove(&removal).await.map_err(context)?;
        self.codec.forget(session);
        let data_key = self.destroy_key(&info.header).await.map_err(context)?;
        let SessionHeader { key, incarnation, genesis, .. } = info.header;
        let receipt = Receipt {
            rekindle_receipt: VERSION,
            session: key,
            incarnation,
            genesis,
            erased_at: self.clock.now(),
            author,
            branches,
            data_key,
            notice: NOTICE.to_owned(),
            signature: None,
        };
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

    /// Removes a session, then its data key. Between the two, the key is of no session: if the process dies
    /// there, it stays until [`Journal::destroy_orphaned_keys`].
    pub(super) async fn remove_session(&self, session: &SessionKey, removal: Removal) -> Result<Removed> {
        let header = match self.store.open(session).await {
            Ok(info) => Some(info.header),
            Err(error) if *error.kind() == ErrorKind::NotFound => None,
            // What is damaged can be removed too.
            Err(error) if *error.kind() == ErrorKind::Corrupt => None,
            Err(error) => return Err(error),
        };
        let removed = self.store.remove(&removal).await?;
        self.codec.forget(session);
        if let Some(header) = header {
            self.destroy_key(&header).await?;
        }
        Ok(removed)
    }
}

fn written(receipt: &Receipt) -> Result<Vec<u8>> {
    serde_json::to_vec(receipt).map_err(|error| Error::invalid("the receipt cannot be written").because(error))
}
