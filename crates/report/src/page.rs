//! The page around the data: its template, styles and scripts, and the policy that allows no others.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::{AutoEscape, Environment, context};
use sha2::{Digest as _, Sha256};

const PAGE: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/style.css");

/// The scripts, in the order in which they run. Each is an element of its own and allowed by its digest.
const SCRIPTS: [&str; 7] = [
    include_str!("../assets/vendor/d3.min.js"),
    include_str!("../assets/vendor/plot.umd.min.js"),
    include_str!("../assets/base.js"),
    include_str!("../assets/table.js"),
    include_str!("../assets/charts.js"),
    include_str!("../assets/trace.js"),
    include_str!("../assets/main.js"),
];

/// Where the data goes.
const DATA: &str = "<!-- data -->";

/// The page before and after its data.
pub(crate) struct Parts {
    pub(crate) head: String,
    pub(crate) foot: String,
}

impl Parts {
    pub(crate) fn new(facts: &[(&'static str, String)]) -> Self {
        let mut scripts = String::new();
        for script in SCRIPTS {
            let _ = writeln!(scripts, "<script>{script}</script>");
        }
        let mut templates = Environment::new();
        templates.set_auto_escape_callback(|_| AutoEscape::Html);
        let values = context! { policy => security_policy(), style => STYLE, scripts => scripts, facts => facts };
        // The template is part of the program: a test renders it.
        let page = templates.render_str(PAGE, values).unwrap_or_default();
        let (head, foot) = page.split_once(DATA).unwrap_or((&page, ""));
        Self { head: head.to_owned(), foot: foot.to_owned() }
    }
}

/// Nothing from anywhere, but the page's own scripts. Plot writes a style sheet into its drawings; with no images, fonts
/// or connections a style can do no more than look wrong.
fn security_policy() -> String {
    let mut policy = "default-src 'none'; script-src".to_owned();
    for script in SCRIPTS {
        let _ = write!(policy, " 'sha256-{}'", STANDARD.encode(Sha256::digest(script)));
    }
    policy.push_str(
        "; style-src 'unsafe-inline'; img-src data:; connect-src 'none'; form-action 'none'; base-uri 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    );
    policy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_data_and_escapes_what_it_is_told() {
        let parts = Parts::new(&[("rules", "<b>sound</b>".into())]);
        assert!(parts.head.starts_with("<!doctype html>") && parts.foot.trim_end().ends_with("</html>"));
        assert!(parts.head.contains("&lt;b&gt;sound&lt;") && !parts.head.contains("<b>sound"));
    }

    #[test]
    fn no_script_ends_early_or_makes_markup_of_text() {
        for (number, script) in SCRIPTS.iter().enumerate() {
            assert!(!script.contains("</script") && !script.contains("<!--") && !script.contains('\r'), "{number}");
        }
        for script in &SCRIPTS[2..] {
            for way in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "fetch("]
            {
                assert!(!script.contains(way), "{way}");
            }
        }
    }

    #[test]
    fn vendored_files_are_as_published() {
        let digest = |script: &str| STANDARD.encode(Sha256::digest(script));
        assert_eq!(digest(SCRIPTS[0]), "kSERCY6plQOm9JZzYdK73J2/WM+cZ4yOJ+WwLRoH8ME=");
        assert_eq!(digest(SCRIPTS[1]), "Q1gIZGd0B3fdeI1rJ6lc69uu/dUMcwowYBFwc71xNMs=");
    }

    #[test]
    fn nothing_of_the_page_is_outside_it() {
        let parts = Parts::new(&[]);
        let page = format!("{}{}", parts.head, parts.foot);
        // Names of XML name spaces, and what D3 says of itself in its first line.
        let known = ["http://www.w3.org/", "https://d3js.org v7"];
        for (at, _) in page.match_indices("http") {
            let rest = &page[at..];
            let is_address = rest.starts_with("http://") || rest.starts_with("https://");
            assert!(!is_address || known.iter().any(|known| rest.starts_with(known)), "{:.60}", rest);
        }
        for way in ["<link rel=\"stylesheet", "src=\"http", "@import", "url(h"] {
            assert!(!page.contains(way), "{way}");
        }
    }
}
