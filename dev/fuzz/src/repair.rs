//! Checksums of the stored forms, made to fit again: what a mutation would otherwise never get past, and
//! what an attacker puts right too.

/// Length of the prefix of a checked line: `{"crc":"1a2b3c4d","len":"00000123",`.
const PREFIX: usize = 35;
/// Header of a binary frame, with its checksum in the last four bytes.
const HEADER: usize = 120;

/// Sets the checksum of a binary frame, and the length of its payload if that is not plausible.
// Targets take functions over vectors, since others change the length.
#[allow(clippy::ptr_arg)]
pub fn frame(bytes: &mut Vec<u8>) {
    if bytes.len() < HEADER {
        return;
    }
    let behind = bytes.len() - HEADER;
    let key = usize::from(bytes[6]);
    // Every other length stays wrong, so that this check is tried as well.
    if bytes[119].is_multiple_of(2) {
        let payload = u32::try_from(behind.saturating_sub(key)).unwrap_or(u32::MAX);
        bytes[112..116].copy_from_slice(&payload.to_le_bytes());
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..HEADER - 4]);
    hasher.update(&bytes[HEADER..]);
    bytes[HEADER - 4..HEADER].copy_from_slice(&hasher.finalize().to_le_bytes());
}

/// Sets checksum and length of each checked line.
pub fn lines(bytes: &mut Vec<u8>) {
    let mut out = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let (line, newline) = line.strip_suffix(b"\n").map_or((line, &b""[..]), |line| (line, &b"\n"[..]));
        match line.split_at_checked(PREFIX) {
            Some((prefix, body)) if prefix.starts_with(b"{\"crc\":\"") => {
                let prefix = format!(r#"{{"crc":"{:08x}","len":"{:08}","#, crc32fast::hash(body), body.len());
                out.extend_from_slice(prefix.as_bytes());
                out.extend_from_slice(body);
            }
            _ => out.extend_from_slice(line),
        }
        out.extend_from_slice(newline);
    }
    *bytes = out;
}
