//! The hash chain: each event's hash covers its body and, through its parent's hash, all before it.

/// A hash of the chain.
pub(crate) type Hash = [u8; 32];

/// What the first event of a branch without a parent follows.
pub(crate) fn root(session: &str) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"condenser-log 1 session ").update(session.as_bytes());
    *hasher.finalize().as_bytes()
}

/// The digest of a body. The chain covers it in place of the body, so that it can outlive the body.
pub(crate) fn digest(json: &[u8]) -> Hash {
    *blake3::hash(json).as_bytes()
}

/// The hash of an event with this body after `parent`.
pub(crate) fn link(parent: &Hash, digest: &Hash) -> Hash {
    let mut both = [0; 64];
    both[..32].copy_from_slice(parent);
    both[32..].copy_from_slice(digest);
    *blake3::hash(&both).as_bytes()
}
