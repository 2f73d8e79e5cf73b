//! Functions of Jinja2 that create objects: `joiner` and `cycler`, with their attributes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use minijinja::value::{Kwargs, Object, ObjectRepr, Rest, Tuple, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::python::wrong;

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_function("joiner", |separator: Option<Value>, named: Kwargs| {
        let own = match separator {
            Some(separator) => Some(separator),
            None => named.get::<Option<Value>>("sep")?,
        };
        named.assert_all_used()?;
        Ok::<_, Error>(Value::from_object(Joiner {
            separator: own.unwrap_or_else(|| Value::from(", ")),
            used: AtomicBool::new(false),
        }))
    });
    environment.add_function("cycler", |items: Rest<Value>| match items.0.is_empty() {
        true => Err(wrong("at least one item has to be provided")),
        false => Ok(Value::from_object(Cycler {
            items: items.0,
            at: AtomicUsize::new(0),
        })),
    });
}

/// Returns nothing on the first call, and a separator from then on.
#[derive(Debug)]
struct Joiner {
    separator: Value,
    used: AtomicBool,
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "sep" => Some(self.separator.clone()),
            "used" => Some(self.used.load(Ordering::Relaxed).into()),
            _ => None,
        }
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let () = from_args(args)?;
        Ok(match self.used.swap(true, Ordering::Relaxed) {
            true => self.separator.clone(),
            false => Value::from(""),
        })
    }
}

/// Returns its items one after the other, in a cycle.
#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    /// Index of the next item.
    at: AtomicUsize,
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = self.at.load(Ordering::Relaxed);
        match key.as_str()? {
            "current" => self.items.get(at).cloned(),
            "items" => Some(Value::from(Tuple::from(&self.items[..]))),
            "pos" => Some(at.into()),
            _ => None,
        }
    }

    fn call_method(
        self: &Arc<Self>,
        _: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let at = self.at.load(Ordering::Relaxed);
        let (found, next) = match method {
            "next" => (self.items.get(at).cloned(), (at + 1) % self.items.len()),
            "reset" => (None, 0),
            _ => return Err(Error::from(ErrorKind::UnknownMethod)),
        };
        let () = from_args(args)?;
        self.at.store(next, Ordering::Relaxed);
        Ok(found.unwrap_or_else(|| Value::from(())))
    }
}
