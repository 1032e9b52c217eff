//! Which modules of a crate name which others, and the circles in that.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, ItemUse, Macro, Path, UseTree, Visibility};

use super::source::{SourceFile, for_tests};

/// Who names whom: modules right below the root of a crate, in which all that is below them counts as one.
#[derive(Debug, Default)]
pub struct Modules {
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Modules {
    /// Reads what all files of a crate name; what is compiled for tests only is left out.
    pub fn of(files: &[SourceFile]) -> Self {
        let rooms: BTreeSet<&str> = files.iter().filter_map(|file| Some(file.module.first()?.as_str())).collect();
        let exported = files.first().map(|root| exported_names(&root.items)).unwrap_or_default();
        let mut modules = Self::default();
        for file in files.iter().filter(|file| !file.test) {
            let Some(own) = file.module.first() else { continue };
            let mut named = Named { module: &file.module, paths: Vec::new() };
            file.items.iter().for_each(|item| named.visit_item(item));
            for name in named.paths {
                let room = if rooms.contains(name.as_str()) { Some(&name) } else { exported.get(&name) };
                if let Some(room) = room.filter(|room| *room != own) {
                    modules.edges.entry(own.clone()).or_default().insert(room.clone());
                }
            }
        }
        modules
    }

    /// Modules of which each can be reached from each other one, largest circle first.
    pub fn circles(&self) -> Vec<Vec<String>> {
        let mut graph = DiGraphMap::<&str, ()>::new();
        for (from, to) in &self.edges {
            for to in to {
                graph.add_edge(from.as_str(), to.as_str(), ());
            }
        }
        let mut circles: Vec<Vec<String>> = tarjan_scc(&graph)
            .into_iter()
            .filter(|circle| circle.len() > 1)
            .map(|circle| {
                let mut names: Vec<_> = circle.into_iter().map(str::to_owned).collect();
                names.sort();
                names
            })
            .collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// Those of `modules` that one module names.
    pub fn named_by<'a>(&self, module: &str, modules: &'a [String]) -> Vec<&'a str> {
        let named = self.edges.get(module);
        modules.iter().filter(|it| named.is_some_and(|named| named.contains(*it))).map(String::as_str).collect()
    }
}

/// Names that the root of a crate exports from one of its modules, with that module.
fn exported_names(root: &[Item]) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for item in root {
        if let Item::Use(ItemUse { tree, vis, .. }) = item
            && !matches!(vis, Visibility::Inherited)
        {
            let mut paths = Vec::new();
            flatten(tree, &mut Vec::new(), &mut paths);
            for path in paths {
                let from = path.iter().find(|name| !matches!(name.as_str(), "crate" | "self")).cloned();
                if let (Some(from), Some(name)) = (from, path.last()) {
                    names.insert(name.clone(), from);
                }
            }
        }
    }
    names
}

/// Each path of an import, written out.
fn flatten(tree: &UseTree, before: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, paths);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, paths)),
        UseTree::Name(name) => paths.push(before.iter().cloned().chain([name.ident.to_string()]).collect()),
        UseTree::Rename(name) => paths.push(before.iter().cloned().chain([name.rename.to_string()]).collect()),
        UseTree::Glob(_) => paths.push(before.clone()),
    }
}

/// Collects the first name after the crate's root of each path that leaves its module.
struct Named<'a> {
    module: &'a [String],
    paths: Vec<String>,
}

impl Named<'_> {
    fn path(&mut self, segments: &[String]) {
        let ups = segments.iter().take_while(|name| *name == "super").count();
        let name = match segments.first().map(String::as_str) {
            Some("crate") => segments.get(1),
            // One `super` for each module that leads here is the root.
            Some("super") if ups >= self.module.len() => segments.get(ups),
            _ => None,
        };
        self.paths.extend(name.cloned());
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => path.push(ident.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == ':' => {}
                other => {
                    self.path(&std::mem::take(&mut path));
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.path(&path);
    }
}

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(it) => &it.attrs,
            Item::Fn(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            Item::Use(it) => &it.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut paths = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut paths);
        paths.iter().for_each(|path| self.path(path));
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.path(&segments);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, it: &'ast Macro) {
        self.tokens(it.tokens.clone());
    }
}
