//! Attribute macros of exobus: `#[task]` registers a function that nodes run, `#[program]` one that drives a job.
//!
//! Both are used through the `exobus` crate, or through `exobus_actors` by crates below it.

use proc_macro::TokenStream;
use proc_macro2::{Span, TokenStream as Tokens};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprArray, FnArg, Ident, ItemFn, Lit, Path, ReturnType, Token, Type, parse_macro_input};

/// Registers a task function.
///
/// ```ignore
/// #[task(name = "sort.map", version = 1, arguments = [whole, stream], setup = load)]
/// fn sort_map(context: &mut TaskContext<'_>, params: MapParams) -> Result<(), TaskError> { .. }
/// ```
///
/// All keys are optional: `name` (default: the function's), `version` (1), `arguments` (all whole; the last mode holds
/// for all further arguments), `setup` (a function that makes the executor's state), `deterministic` (false; see
/// `Function::deterministic`), `commits` (false; see `TaskFunction::COMMITS`). The function takes the context and at most one parameter that can be serialized; what it returns inside `Result`, if not `()`, becomes its output
/// as MessagePack. A type of the same name stands for the function where tasks are submitted.
#[proc_macro_attribute]
pub fn task(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(attributes as Options);
    let function = parse_macro_input!(item as ItemFn);
    expand_task(options, function).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Registers a coordinator program: `async fn(futures: Futures, params: P) -> Result<R, JobError>`.
///
/// ```ignore
/// #[program(name = "sort", version = 1)]
/// async fn sort(futures: Futures, params: SortParams) -> Result<SortReport, JobError> { .. }
/// ```
///
/// A type of the same name stands for the program where a client runs it: `client.run::<sort>(&params)`, see `registry::JobProgram`.
///
/// `give_back = function`, a `fn(JobId, P)`, is called when the job is over, where it ends: see `registry::Program::give_back`.
/// `paths = function`, a `fn(&P) -> registry::Paths`, says which files these parameters name; `needs = function`, a `fn(&P) -> task::Resources`,
/// what the largest of its tasks needs of a node: without a node that has it the job is refused.
#[proc_macro_attribute]
pub fn program(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(attributes as Options);
    let function = parse_macro_input!(item as ItemFn);
    expand_program(options, function).unwrap_or_else(|error| error.into_compile_error()).into()
}

#[derive(Default)]
struct Options {
    name: Option<String>,
    version: Option<u32>,
    arguments: Vec<Ident>,
    setup: Option<Path>,
    deterministic: bool,
    commits: bool,
    give_back: Option<Path>,
    paths: Option<Path>,
    needs: Option<Path>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut options = Self::default();
        for pair in Punctuated::<syn::MetaNameValue, Token![,]>::parse_terminated(input)? {
            let key = pair.path.require_ident()?.to_string();
            match (key.as_str(), &pair.value) {
                ("name", Expr::Lit(value)) if let Lit::Str(text) = &value.lit => options.name = Some(text.value()),
                ("version", Expr::Lit(value)) if let Lit::Int(number) = &value.lit => {
                    options.version = Some(number.base10_parse()?);
                }
                ("arguments", Expr::Array(modes)) => options.arguments = modes_of(modes)?,
                ("setup", Expr::Path(path)) => options.setup = Some(path.path.clone()),
                ("deterministic", Expr::Lit(value)) if let Lit::Bool(flag) = &value.lit => {
                    options.deterministic = flag.value;
                }
                ("commits", Expr::Lit(value)) if let Lit::Bool(flag) = &value.lit => options.commits = flag.value,
                ("give_back", Expr::Path(path)) => options.give_back = Some(path.path.clone()),
                ("paths", Expr::Path(path)) => options.paths = Some(path.path.clone()),
                ("needs", Expr::Path(path)) => options.needs = Some(path.path.clone()),
                _ => {
                    let text = "expected name = \"..\", version = N, arguments = [whole, stream, either], setup = function, \
                                deterministic = true, commits = true, give_back = function, paths = function or needs = function";
                    return Err(syn::Error::new_spanned(&pair, text));
                }
            }
        }
        Ok(options)
    }
}

fn modes_of(modes: &ExprArray) -> syn::Result<Vec<Ident>> {
    let mode = |element: &Expr| match element {
        Expr::Path(path) if path.path.is_ident("whole") => Ok(format_ident!("Whole")),
        Expr::Path(path) if path.path.is_ident("stream") => Ok(format_ident!("Stream")),
        Expr::Path(path) if path.path.is_ident("either") => Ok(format_ident!("Either")),
        Expr::Path(path) if path.path.is_ident("in_place") => Ok(format_ident!("InPlace")),
        other => Err(syn::Error::new_spanned(other, "an argument is `whole`, `stream`, `either` or `in_place`")),
    };
    modes.elems.iter().map(mode).collect()
}

/// The crate through which the caller sees exobus: the facade, or the actors themselves.
fn runtime() -> Tokens {
    // A crate that names neither cannot have got hold of this macro.
    let depends_on = |name: &str| {
        let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        let text = std::fs::read_to_string(format!("{manifest}/Cargo.toml")).unwrap_or_default();
        text.lines().any(|line| line.trim_start().starts_with(name))
    };
    // Its own tests, benches and examples are crates of another name in the same package.
    let in_actors = std::env::var("CARGO_PKG_NAME").is_ok_and(|name| name == "exobus-actors");
    if in_actors || depends_on("exobus-actors") { quote!(::exobus_actors) } else { quote!(::exobus) }
}

/// The parameter type, or `()`.
fn params_of(function: &ItemFn) -> syn::Result<Type> {
    match function.sig.inputs.iter().nth(1) {
        None => Ok(syn::parse_quote!(())),
        Some(FnArg::Typed(params)) if function.sig.inputs.len() == 2 => Ok((*params.ty).clone()),
        Some(_) => Err(syn::Error::new_spanned(&function.sig.inputs, "expected a context and at most one parameter")),
    }
}

fn returned(function: &ItemFn) -> syn::Result<Type> {
    let fail = || syn::Error::new(Span::call_site(), "expected `-> Result<_, _>`");
    let ReturnType::Type(_, ty) = &function.sig.output else { return Err(fail()) };
    let Type::Path(path) = &**ty else { return Err(fail()) };
    let segment = path.path.segments.last().ok_or_else(fail)?;
    let syn::PathArguments::AngleBracketed(arguments) = &segment.arguments else { return Err(fail()) };
    match arguments.args.first() {
        Some(syn::GenericArgument::Type(ty)) => Ok(ty.clone()),
        _ => Err(fail()),
    }
}

fn expand_task(options: Options, function: ItemFn) -> syn::Result<Tokens> {
    let runtime = runtime();
    let ident = function.sig.ident.clone();
    let visibility = &function.vis;
    let docs = function.attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let name = options.name.unwrap_or_else(|| ident.to_string());
    let version = options.version.unwrap_or(1);
    let (deterministic, commits) = (options.deterministic, options.commits);
    let modes = options.arguments.iter().map(|mode| quote!(#runtime::registry::Mode::#mode));
    let setup = match options.setup {
        Some(path) => quote!(::core::option::Option::Some(|| {
            #path().map(|state| ::std::boxed::Box::new(state) as #runtime::registry::SetupState)
        })),
        None => quote!(::core::option::Option::None),
    };
    let params = params_of(&function)?;
    let value = returned(&function)?;
    let pass = if function.sig.inputs.len() == 2 { quote!(context, params) } else { quote!(context) };
    // A unit struct takes the name both as a type and as a value, so the function itself gets another one.
    let mut inner = function.clone();
    let body = format_ident!("{ident}_body");
    inner.vis = syn::Visibility::Inherited;
    inner.attrs.retain(|attribute| !attribute.path().is_ident("doc"));
    inner.sig.ident = body.clone();
    Ok(quote! {
        #(#docs)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #ident;

        const _: () = {
            #inner

            fn call(context: &mut #runtime::registry::TaskContext<'_>, bytes: &[u8])
                -> ::core::result::Result<(), #runtime::registry::TaskError>
            {
                let params: #params = #runtime::decode_params(bytes)?;
                let _ = &params;
                let value = #body(#pass)?;
                context.return_value(&value)
            }

            #runtime::inventory::submit! {
                #runtime::registry::Function {
                    name: #name,
                    version: #version,
                    modes: &[#(#modes),*],
                    setup: #setup,
                    deterministic: #deterministic,
                    module: ::core::module_path!(),
                    call,
                }
            }

            impl #runtime::registry::TaskFunction for #ident {
                type Params = #params;
                type Value = #value;
                const NAME: &'static str = #name;
                const VERSION: u32 = #version;
                const DETERMINISTIC: bool = #deterministic;
                const COMMITS: bool = #commits;

                fn key() -> ::std::sync::Arc<str> {
                    static KEY: ::std::sync::OnceLock<::std::sync::Arc<str>> = ::std::sync::OnceLock::new();
                    KEY.get_or_init(|| ::std::sync::Arc::from(concat!(#name, "@", #version))).clone()
                }
            }
        };
    })
}

fn expand_program(options: Options, function: ItemFn) -> syn::Result<Tokens> {
    let runtime = runtime();
    let ident = function.sig.ident.clone();
    let name = options.name.unwrap_or_else(|| ident.to_string());
    let version = options.version.unwrap_or(1);
    let visibility = &function.vis;
    let params = params_of(&function)?;
    let ReturnType::Type(_, returned) = &function.sig.output else {
        return Err(syn::Error::new_spanned(&function.sig, "expected `-> Result<_, JobError>`"));
    };
    let stands_for = format!("The program `{name}@{version}`, as a client names it.");
    let pass = if function.sig.inputs.len() == 2 { quote!(futures, params) } else { quote!(futures) };
    let give_back = match options.give_back {
        // Parameters that cannot be read were never run with.
        Some(function) => quote!(::core::option::Option::Some(|job, bytes| {
            if let ::core::result::Result::Ok(params) = #runtime::decode_params::<#params>(bytes) {
                #function(job, params)
            }
        })),
        None => quote!(::core::option::Option::None),
    };
    let paths = match options.paths {
        Some(function) => quote!(#function(&params)),
        None => quote!({
            let _ = &params;
            #runtime::registry::Paths::default()
        }),
    };
    let needs = match options.needs {
        Some(function) => {
            quote!(#runtime::decode_params::<#params>(bytes).map(|params| #function(&params)).unwrap_or_default())
        }
        None => quote!({
            let _ = bytes;
            #runtime::task::Resources::default()
        }),
    };
    Ok(quote! {
        #function

        // An enum without variants takes the name as a type only, so that the function keeps it as a value.
        #[doc = #stands_for]
        #[allow(non_camel_case_types, dead_code)]
        #visibility enum #ident {}

        const _: () = {
            impl #runtime::registry::JobProgram for #ident {
                type Params = #params;
                type Value = <#returned as #runtime::registry::Returned>::Value;
                const NAME: &'static str = #name;
                const VERSION: u32 = #version;
            }

            fn run(futures: #runtime::futures::Futures, bytes: &[u8])
                -> #runtime::LocalBoxFuture<'_, ::core::result::Result<::std::vec::Vec<u8>, #runtime::task::JobError>>
            {
                ::std::boxed::Box::pin(async move {
                    let params: #params = #runtime::decode_params(bytes).map_err(#runtime::task::JobError::program)?;
                    let _ = &params;
                    let value = #ident(#pass).await?;
                    #runtime::encode_result(&value)
                })
            }

            fn check(bytes: &[u8])
                -> ::core::result::Result<#runtime::registry::Paths, ::std::string::String>
            {
                let params: #params = #runtime::check_params(bytes)?;
                ::core::result::Result::Ok(#paths)
            }

            fn needs_of(bytes: &[u8]) -> #runtime::task::Resources {
                #needs
            }

            #runtime::inventory::submit! {
                #runtime::registry::Program { name: #name, version: #version, run, give_back: #give_back, check, needs: needs_of }
            }
        };
    })
}
