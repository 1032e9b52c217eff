//! The source files of a crate: read, parsed, and told apart from tests.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit};

/// One file of a crate.
pub struct SourceFile {
    /// From the folder of the root.
    pub path: PathBuf,
    /// The modules that lead to it, the crate's root first: empty for the root itself.
    pub module: Vec<String>,
    /// Whether all of it is compiled for tests only.
    pub test: bool,
    pub text: String,
    pub items: Vec<Item>,
}

/// All files of the library or binary whose root is `root`, in the order in which they are declared.
///
/// # Errors
/// A file that is declared cannot be read or parsed.
pub fn read_crate(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    let folder = root.parent().unwrap_or(root);
    read_file(folder, root, Vec::new(), false, &mut files)?;
    Ok(files)
}

fn read_file(folder: &Path, path: &Path, module: Vec<String>, test: bool, files: &mut Vec<SourceFile>) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let parsed = syn::parse_file(&text).with_context(|| format!("parse {}", path.display()))?;
    // `a.rs` and `a/mod.rs` declare modules below `a/`, roots beside themselves.
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let parent = path.parent().unwrap_or(folder);
    let below = if module.is_empty() || stem == "mod" { parent.to_owned() } else { parent.join(stem) };
    let declared: Vec<_> = parsed
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Mod(ItemMod { attrs, ident, content: None, .. }) => {
                let name = ident.to_string();
                let file = match path_attribute(attrs) {
                    Some(named) => parent.join(named),
                    None => Some(below.join(format!("{name}.rs")))
                        .filter(|file| file.exists())
                        .unwrap_or_else(|| below.join(&name).join("mod.rs")),
                };
                Some((name, file, test || for_tests(attrs)))
            }
            _ => None,
        })
        .collect();
    let relative = path.strip_prefix(folder).unwrap_or(path).to_owned();
    files.push(SourceFile { path: relative, module: module.clone(), test, text, items: parsed.items });
    for (name, file, test) in declared {
        read_file(folder, &file, module.iter().cloned().chain([name]).collect(), test, files)?;
    }
    Ok(())
}

/// The file of `#[path = "file"]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find(|it| it.path().is_ident("path")).and_then(|it| {
        match &it.meta.require_name_value().ok()?.value {
            Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        }
    })
}

/// Whether an item with these attributes is compiled for tests only.
pub fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let is_test = path.segments.last().is_some_and(|last| last.ident == "test");
        let is_cfg = path.is_ident("cfg") && attribute.meta.require_list().is_ok_and(|list| names_test(&list.tokens));
        is_test || is_cfg
    })
}

/// `test` or `all(test, ...)`, and neither `not(test)` nor `any(test, ...)`, which is compiled at other times, too.
fn names_test(tokens: &proc_macro2::TokenStream) -> bool {
    let text = tokens.to_string().replace(' ', "");
    text == "test" || text.starts_with("all(") && text[4..].trim_end_matches(')').split(',').any(|it| it == "test")
}

/// Lines by what is on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    pub code: usize,
    pub docs: usize,
    pub comments: usize,
    pub tests: usize,
    pub blank: usize,
}

impl Lines {
    pub fn add(&mut self, other: Self) {
        self.code += other.code;
        self.docs += other.docs;
        self.comments += other.comments;
        self.tests += other.tests;
        self.blank += other.blank;
    }
}

impl SourceFile {
    /// Its lines by kind; whatever is compiled for tests only counts as tests, comments there included.
    pub fn lines(&self) -> Lines {
        let tests: Vec<_> = self.items.iter().filter_map(test_lines).collect();
        let mut lines = Lines::default();
        for (number, line) in (1..).zip(self.text.lines()) {
            let line = line.trim_start();
            let kind = if line.is_empty() {
                &mut lines.blank
            } else if self.test || tests.iter().any(|(first, last)| (*first..=*last).contains(&number)) {
                &mut lines.tests
            } else if line.starts_with("///") || line.starts_with("//!") {
                &mut lines.docs
            } else if line.starts_with("//") {
                &mut lines.comments
            } else {
                &mut lines.code
            };
            *kind += 1;
        }
        lines
    }
}

/// The first and the last line of an item that is compiled for tests only.
fn test_lines(item: &Item) -> Option<(usize, usize)> {
    let attributes = match item {
        Item::Mod(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        Item::Const(it) => &it.attrs,
        _ => return None,
    };
    for_tests(attributes).then(|| (item.span().start().line, item.span().end().line))
}
