//! Images and files that messages show by `file:` URI: read when a request is made, and sent with it.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rekindle::message::{Message, Part, Reference, Role};
use rekindle::model::ModelError;
use reqwest::Url;

/// The largest file that is sent.
const MAX_BYTES: u64 = 20_000_000;

/// Which files may be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    root: Option<PathBuf>,
}

impl Files {
    pub(crate) fn under(root: impl Into<PathBuf>) -> Self {
        Self { root: Some(root.into()) }
    }

    /// Puts the contents of files in place of their URIs.
    pub(crate) async fn inline(&self, messages: &mut [Message]) -> Result<(), ModelError> {
        // Only a user can show something to a provider.
        let shown = messages.iter_mut().filter(|message| message.role == Role::User);
        for part in shown.flat_map(|message| &mut message.parts) {
            if let Part::Image(reference) | Part::File(reference) = part
                && reference.uri.starts_with("file:")
            {
                let (files, taken) = (self.clone(), reference.clone());
                let reading = tokio::task::spawn_blocking(move || files.read(&taken)).await;
                *reference = reading.map_err(|_| ModelError::fatal("reading a file was broken off"))??;
            }
        }
        Ok(())
    }

    fn read(&self, reference: &Reference) -> Result<Reference, ModelError> {
        let uri = &reference.uri;
        let Some(root) = &self.root else {
            let message = format!("{uri} cannot be sent: this model may read no files (see `allow_files_under`)");
            return Err(ModelError::fatal(message));
        };
        let path = path_of(uri).ok_or_else(|| ModelError::fatal(format!("{uri} names no file here")))?;
        let path = allowed(root, &root.join(path))?;
        let media_type = match &reference.media_type {
            Some(media_type) => media_type.clone(),
            None => media_type(&path)?.to_owned(),
        };
        let data = BASE64_STANDARD.encode(contents(&path)?);
        Ok(Reference { uri: format!("data:{media_type};base64,{data}"), media_type: Some(media_type) })
    }
}

/// The path in a URI. One without slashes at its beginning is relative, and stands as it is.
fn path_of(uri: &str) -> Option<PathBuf> {
    match uri.strip_prefix("file:") {
        Some(path) if path.starts_with('/') => Url::parse(uri).ok()?.to_file_path().ok(),
        Some(path) if !path.is_empty() => Some(path.into()),
        _ => None,
    }
}

/// The real path, if it is under `root`: neither `..` nor a link leads out of it.
fn allowed(root: &Path, path: &Path) -> Result<PathBuf, ModelError> {
    let root = root.canonicalize().map_err(|error| unreadable(root, &error))?;
    let real = path.canonicalize().map_err(|error| unreadable(path, &error))?;
    if real.starts_with(&root) {
        return Ok(real);
    }
    Err(ModelError::fatal(format!("{} cannot be sent: it is not under {}", path.display(), root.display())))
}

fn contents(path: &Path) -> Result<Vec<u8>, ModelError> {
    // Reading from a pipe may never end.
    if !path.is_file() {
        return Err(ModelError::fatal(format!("{} is not a file", path.display())));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ModelError::fatal(format!("{} is larger than {MAX_BYTES} bytes", path.display())));
    }
    Ok(bytes)
}

fn unreadable(path: &Path, error: &std::io::Error) -> ModelError {
    ModelError::fatal(format!("{} cannot be read: {error}", path.display()))
}

fn media_type(path: &Path) -> Result<&'static str, ModelError> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    Ok(match extension.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "txt" | "md" => "text/plain",
        _ => return Err(ModelError::fatal(format!("{} has no known type: give its media type", path.display()))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(uri: impl Into<String>) -> Reference {
        Reference { uri: uri.into(), media_type: None }
    }

    fn refused(files: &Files, uri: impl Into<String>, expected: &str) {
        let error = files.read(&image(uri)).unwrap_err();
        assert!(error.message.contains(expected) && !error.retry, "{error}");
    }

    #[test]
    fn files_under_the_root_are_read() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a b.PNG"), b"png").unwrap();
        let files = Files::under(place.path());
        let expected = Reference { media_type: Some("image/png".into()), ..image("data:image/png;base64,cG5n") };
        assert_eq!(files.read(&image("file:a b.PNG")).unwrap(), expected);
        let whole = format!("file://{}/a%20b.PNG", place.path().display());
        assert_eq!(files.read(&image(whole)).unwrap(), expected);
        let told = Reference { media_type: Some("image/x".into()), ..image("file:a b.PNG") };
        assert_eq!(files.read(&told).unwrap().uri, "data:image/x;base64,cG5n");
    }

    #[test]
    fn no_other_file_is_read() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(place.path().join("out.png"), b"x").unwrap();
        std::fs::write(root.join("odd.xyz"), b"x").unwrap();
        let files = Files::under(&root);
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(place.path().join("out.png"), root.join("link.png")).unwrap();
            refused(&files, "file:link.png", "is not under");
        }
        refused(&files, "file:../out.png", "is not under");
        refused(&files, format!("file://{}/out.png", place.path().display()), "is not under");
        refused(&files, "file:none.png", "none.png cannot be read");
        refused(&files, "file:.", "has no known type");
        std::fs::create_dir(root.join("folder.png")).unwrap();
        refused(&files, "file:folder.png", "is not a file");
        refused(&files, "file:odd.xyz", "odd.xyz has no known type");
        refused(&files, "file://elsewhere/out.png", "names no file here");
        refused(&files, "file:", "names no file here");
        refused(&Files::default(), "file:a.png", "may read no files");
    }

    #[test]
    fn a_large_file_is_refused() {
        let place = tempfile::tempdir().unwrap();
        File::create(place.path().join("big.png")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        refused(&Files::under(place.path()), "file:big.png", "is larger than");
    }

    #[tokio::test]
    async fn only_what_users_show_is_read() {
        let shown = |role, uri: &str| Message::new(role, vec![Part::Image(image(uri))]);
        let mut messages = [shown(Role::Assistant, "file:a.png"), shown(Role::User, "https://x/a.png")];
        let before = messages.clone();
        Files::default().inline(&mut messages).await.unwrap();
        assert_eq!(messages, before);
        let error = Files::default().inline(&mut [shown(Role::User, "file:a.png")]).await.unwrap_err();
        assert!(error.message.starts_with("file:a.png cannot be sent"), "{error}");
    }
}
