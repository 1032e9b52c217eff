//! `cargo xtask structure`: what makes a crate hard to read, counted. Lines by kind, circles of modules, large types, long functions,
//! names that stand for two types.

mod graph;
mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, Fields, ImplItemFn, Item, ItemFn, ItemMod, Signature};

use crate::workspace::Workspace;
use graph::Modules;
use source::{Lines, SourceFile, for_tests, read_crate};

/// Functions of more lines are listed.
const FUNCTION_LINES_MAX: usize = 60;
/// Structures of more fields are listed.
const FIELDS_MAX: usize = 20;

/// What was found in one crate.
struct Structure {
    name: String,
    lines: Lines,
    modules: Modules,
    findings: Findings,
}

/// Counts the crates whose names are given, all of them where none is.
///
/// # Errors
/// A source file cannot be read or parsed.
pub fn run(workspace: &Workspace, only: &[String]) -> Result<()> {
    let mut total = Lines::default();
    if let Some(package) = only.iter().find(|name| workspace.crates.iter().all(|it| it.name != **name)) {
        bail!("no crate is called {package}");
    }
    for package in workspace.crates.iter().filter(|it| only.is_empty() || only.contains(&it.name)) {
        let structure = Structure::of(&package.name, &package.root)?;
        structure.print();
        total.add(structure.lines);
    }
    println!("\nall crates: {}", line(total));
    Ok(())
}

fn line(lines: Lines) -> String {
    let Lines { code, docs, comments, tests, blank } = lines;
    format!("{code} lines of code, {docs} of docs, {comments} of comments, {tests} of tests, {blank} blank")
}

impl Structure {
    fn of(name: &str, root: &Path) -> Result<Self> {
        let files = read_crate(root)?;
        let mut lines = Lines::default();
        files.iter().for_each(|file| lines.add(file.lines()));
        Ok(Self { name: name.to_owned(), lines, modules: Modules::of(&files), findings: Findings::of(&files) })
    }

    fn print(&self) {
        println!("\n{}: {}", self.name, line(self.lines));
        for circle in self.modules.circles() {
            println!("  a circle of {} modules:", circle.len());
            for module in &circle {
                println!("    {module} names {}", self.modules.named_by(module, &circle).join(", "));
            }
        }
        for (name, fields, place) in &self.findings.large {
            println!("  {name} has {fields} fields ({place})");
        }
        for (name, lines, place) in &self.findings.long {
            println!("  fn {name} has {lines} lines ({place})");
        }
        for (name, places) in self.findings.types.iter().filter(|(_, places)| places.len() > 1) {
            println!("  {name} stands for {} types ({})", places.len(), places.join(", "));
        }
    }
}

/// What is found by a walk over the items of a crate; tests are left out.
#[derive(Default)]
struct Findings {
    place: PathBuf,
    /// Name, fields, file.
    large: Vec<(String, usize, String)>,
    /// Name, lines, file.
    long: Vec<(String, usize, String)>,
    /// The files in which a type of a name is defined.
    types: BTreeMap<String, Vec<String>>,
}

impl Findings {
    fn of(files: &[SourceFile]) -> Self {
        let mut findings = Self::default();
        for file in files.iter().filter(|file| !file.test) {
            findings.place.clone_from(&file.path);
            file.items.iter().for_each(|item| findings.visit_item(item));
        }
        findings
    }

    fn place(&self) -> String {
        self.place.display().to_string()
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        let lines = block.span().end().line + 1 - signature.span().start().line;
        if lines > FUNCTION_LINES_MAX {
            self.long.push((signature.ident.to_string(), lines, self.place()));
        }
    }

    fn a_type(&mut self, name: &syn::Ident) {
        let place = self.place();
        self.types.entry(name.to_string()).or_default().push(place);
    }
}

impl<'ast> Visit<'ast> for Findings {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Struct(it) if !for_tests(&it.attrs) => {
                self.a_type(&it.ident);
                let fields = match &it.fields {
                    Fields::Named(fields) => fields.named.len(),
                    Fields::Unnamed(fields) => fields.unnamed.len(),
                    Fields::Unit => 0,
                };
                if fields > FIELDS_MAX {
                    self.large.push((it.ident.to_string(), fields, self.place()));
                }
            }
            Item::Enum(it) if !for_tests(&it.attrs) => self.a_type(&it.ident),
            Item::Trait(it) if !for_tests(&it.attrs) => self.a_type(&it.ident),
            Item::Type(it) if !for_tests(&it.attrs) => self.a_type(&it.ident),
            Item::Mod(ItemMod { attrs, .. }) if for_tests(attrs) => return,
            Item::Impl(it) if for_tests(&it.attrs) => return,
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, it: &'ast ItemFn) {
        if !for_tests(&it.attrs) {
            self.function(&it.sig, &it.block);
            visit::visit_item_fn(self, it);
        }
    }

    fn visit_impl_item_fn(&mut self, it: &'ast ImplItemFn) {
        if !for_tests(&it.attrs) {
            self.function(&it.sig, &it.block);
            visit::visit_impl_item_fn(self, it);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The structure of a crate that is made of these files.
    fn structure(files: &[(&str, &str)]) -> Structure {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Structure::of("it", &folder.path().join("lib.rs")).unwrap()
    }

    #[test]
    fn a_circle_is_found_whichever_way_a_module_names_another() {
        let found = structure(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e; pub use c::Exported;"),
            ("a/mod.rs", "mod inner;"),
            ("a/inner.rs", "use super::super::b::It;"),
            ("b.rs", "fn it() { println!(\"{}\", crate::Exported::NAME); }"),
            ("c.rs", "use crate::{a::inner, e};"),
            ("d.rs", "use crate::a::Other; #[cfg(test)] mod tests { use crate::e::It; }"),
            ("e.rs", "#[cfg(test)] use crate::d::Thing;"),
        ]);
        assert_eq!(found.modules.circles(), [["a", "b", "c"]]);
    }

    #[test]
    fn lines_are_told_apart() {
        let found = structure(&[
            ("lib.rs", "//! Docs.\n\n// A comment.\nmod a;\n#[cfg(test)]\nmod tests {\n    // A comment.\n}\n"),
            ("a.rs", "/// Docs.\nfn it() {}\n\n#[cfg(test)]\nmod a_tests;\n"),
            ("a/a_tests.rs", "fn one() {}\n/// Docs.\nfn two() {}\n"),
        ]);
        assert_eq!(found.lines, Lines { code: 2, docs: 2, comments: 1, tests: 9, blank: 2 });
    }

    #[test]
    fn what_is_long_large_or_called_twice_is_found_and_tests_are_not() {
        let long = format!("fn long() {{\n{}}}\n", "it();\n".repeat(FUNCTION_LINES_MAX));
        let large: String = (0..=FIELDS_MAX).map(|field| format!("f{field}: u8, ")).collect();
        let text = format!(
            "{long} struct Large {{ {large} }} enum Name {{}} #[cfg(test)] mod tests {{ {long} struct Large; }}"
        );
        let found =
            structure(&[("lib.rs", "mod a; mod b;"), ("a.rs", &text), ("b.rs", "type Name = u8; struct Other;")]);
        let names = |list: &[(String, usize, String)]| {
            list.iter().map(|(name, count, _)| (name.clone(), *count)).collect::<Vec<_>>()
        };
        assert_eq!(names(&found.findings.long), [("long".to_owned(), FUNCTION_LINES_MAX + 2)]);
        assert_eq!(names(&found.findings.large), [("Large".to_owned(), FIELDS_MAX + 1)]);
        let twice: Vec<_> = found.findings.types.iter().filter(|(_, places)| places.len() > 1).collect();
        assert_eq!(twice, [(&"Name".to_owned(), &vec!["a.rs".to_owned(), "b.rs".to_owned()])]);
    }

    /// Who sends to an actor imports its protocol, and nothing of its inside: nothing leads back.
    #[test]
    fn no_modules_of_the_actors_name_each_other_in_a_circle() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../actors/src/lib.rs");
        assert_eq!(Structure::of("exobus-actors", &root).unwrap().modules.circles(), Vec::<Vec<String>>::new());
    }
}
