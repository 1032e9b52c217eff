//! What somebody may have meant.

/// The name among these that is most like `unknown`, where one is like it. Of dotted names, a right last part is one slip, whatever
/// the others are.
pub fn nearest(unknown: &str, known: impl IntoIterator<Item = impl Into<String>>) -> Option<String> {
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    // Nothing is like a text that long, and to see it takes long.
    if unknown.len() > 100 {
        return None;
    }
    let distance = |known: &str| {
        let whole = strsim::damerau_levenshtein(unknown, known);
        whole.min(1 + strsim::damerau_levenshtein(&last(unknown), &last(known)))
    };
    let allowed = (last(unknown).chars().count() / 3).max(2);
    let known = known.into_iter().map(Into::into).map(|known: String| (distance(&known), known));
    known.min().filter(|(distance, _)| *distance <= allowed).map(|(_, known)| known)
}

/// "; did you mean `x`?", or what else there is to say.
pub(super) fn hint(unknown: &str, known: impl IntoIterator<Item = impl Into<String>>, otherwise: &str) -> String {
    match nearest(unknown, known) {
        Some(known) => format!("did you mean `{known}`?"),
        None => otherwise.to_owned(),
    }
}
