//! `omnidraft chat`.

use std::io::{BufRead, IsTerminal};
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow};
use bench::args::write_out;
use clap::Args;
use models::{Message, TemplateRequest};
use serve::{Done, Event, LookupScope, Request, Service, watch_interrupts};
use spec_decode::Sampling;

use super::serve::ServiceArgs;
use super::template::{TemplateArgs, note_left_out};

const HELP: &str = "\
/reset          forget the conversation
/drafter on|off decode with the drafter or without
/stats          what the drafter is worth
/save           write what was learnt
/quit           end, as does the end of input";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft chat --target models/L --drafter models/D --state runs/chat
  omnidraft chat --target models/Q --drafter models/D --temperature 0.7 --seed 7
  omnidraft chat --target torch:models/Q --torch-device cpu --drafter models/D
  omnidraft chat --target http://127.0.0.1:8666 --drafter models/D
  printf 'Add 2 and 3.\\n/stats\\n' | omnidraft chat --target models/L --drafter models/D

A line is a message; /help lists what else can be typed. An interrupt ends an answer, or the program.")]
pub struct ChatArgs {
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    template: TemplateArgs,
    /// Sampling temperature; 0 is greedy.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f64,
    /// Seed of the random streams; the answers of a conversation count up from it.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// A conversation at a terminal.
struct Chat {
    service: Arc<Mutex<Service>>,
    /// Set by an interrupt while an answer is written.
    stop: Arc<AtomicBool>,
    answering: Arc<AtomicBool>,
    sampling: Sampling,
    seed: u64,
    drafting: bool,
    request: TemplateRequest,
    system: Option<String>,
    said: Vec<(String, String)>,
    last: Option<Done>,
}

impl ChatArgs {
    /// Runs the conversation until the end of the input.
    pub fn execute(self) -> Result<()> {
        let sampling = Sampling::new(self.temperature).map_err(bench::args::flag)?;
        let mut options = self.service.options(1, 0)?;
        // A chat has one user, so all its texts are that user's.
        let one = |scope| match scope {
            LookupScope::User => LookupScope::Shared,
            other => other,
        };
        options.lookup = options.lookup.map(one);
        let service = Service::start(options)?;
        for target in &service.models().targets {
            note_left_out(&target.text, &[], "");
        }
        let mut chat = Chat {
            service: Arc::new(Mutex::new(service)),
            stop: Arc::default(),
            answering: Arc::default(),
            sampling,
            seed: self.seed,
            drafting: true,
            request: TemplateRequest {
                variables: self.template.variables()?,
                ..TemplateRequest::default()
            },
            system: self.template.system().map(str::to_owned),
            said: Vec::new(),
            last: None,
        };
        chat.watch()?;
        // What was learnt is saved also if the conversation ends with an error.
        let talked = chat.talk();
        let stopped = locked(&chat.service).stop();
        talked?;
        Ok(stopped?)
    }
}

fn locked(service: &Mutex<Service>) -> MutexGuard<'_, Service> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Chat {
    /// An interrupt ends the answer that is being written, or else the program, with its state
    /// saved.
    fn watch(&self) -> Result<()> {
        let (service, stop) = (Arc::clone(&self.service), Arc::clone(&self.stop));
        let answering = Arc::clone(&self.answering);
        Ok(watch_interrupts(move || {
            if answering.load(Ordering::SeqCst) {
                stop.store(true, Ordering::SeqCst);
                return;
            }
            let stopped = locked(&service).stop().map_err(anyhow::Error::from);
            if let Err(error) = &stopped {
                eprintln!("error: {error:#}");
            }
            // The customary exit status after an interrupt.
            std::process::exit(if stopped.is_ok() { 130 } else { 2 });
        })?)
    }

    /// Answers line after line, until the input or the conversation ends.
    fn talk(&mut self) -> Result<()> {
        let shown = std::io::stdin().is_terminal();
        if shown {
            eprintln!("A line is a message; /help lists what else can be typed.");
        }
        let mut line = String::new();
        loop {
            if shown {
                eprint!("> ");
            }
            line.clear();
            let read = std::io::stdin().lock().read_line(&mut line);
            if read.context("standard input")? == 0 {
                return Ok(());
            }
            let next = match line.trim() {
                "" => Continue(()),
                command if command.starts_with('/') => self.obey(command),
                message => self.answer(message)?,
            };
            if next.is_break() {
                return Ok(());
            }
        }
    }

    fn obey(&mut self, command: &str) -> ControlFlow<()> {
        match command.split_whitespace().collect::<Vec<_>>()[..] {
            ["/quit" | "/exit"] => return Break(()),
            ["/reset"] => {
                self.said.clear();
                eprintln!("the conversation is forgotten");
            }
            ["/drafter", word @ ("on" | "off")] => {
                self.drafting = word == "on";
                eprintln!("the drafter is {word}");
            }
            ["/stats"] => self.stats(),
            ["/save"] => locked(&self.service).save(),
            ["/help"] => eprintln!("{HELP}"),
            _ => eprintln!("unknown command `{command}`\n{HELP}"),
        }
        Continue(())
    }

    fn stats(&self) {
        if let Some(done) = &self.last {
            let per_round = done.tokens as f64 / done.rounds.max(1) as f64;
            eprintln!(
                "last answer: {} tokens, {} of {} drafted tokens accepted ({} of them n-grams), {per_round:.2} tokens a round, {:.1} tokens/s",
                done.tokens,
                done.accepted,
                done.proposed,
                done.ngrams,
                done.tokens as f64 / done.seconds.max(1e-9),
            );
        }
        let service = locked(&self.service);
        for line in service.stats().summary() {
            eprintln!("{line}");
        }
    }

    fn answer(&mut self, message: &str) -> Result<ControlFlow<()>> {
        self.said.push(("user".to_owned(), message.to_owned()));
        self.answering.store(true, Ordering::SeqCst);
        let answered = self.write();
        self.answering.store(false, Ordering::SeqCst);
        self.stop.store(false, Ordering::SeqCst);
        match answered {
            Ok(Some(text)) => {
                self.said.push(("assistant".to_owned(), text));
                self.seed += 1;
                Ok(Continue(()))
            }
            // Standard output is closed.
            Ok(None) => Ok(Break(())),
            Err(error) if std::io::stdin().is_terminal() => {
                self.said.pop();
                eprintln!("error: {error:#}");
                Ok(Continue(()))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the answer as it arrives; `None` if standard output is closed.
    fn write(&mut self) -> Result<Option<String>> {
        let mut events = {
            let service = locked(&self.service);
            let system = self.system.iter().map(|text| Message::new("system", text));
            let said = self.said.iter();
            let said = said.map(|(role, content)| Message::new(role, content));
            let turns: Vec<Message<'_>> = system.chain(said).collect();
            let hint = "hint: /reset forgets the conversation";
            let prompt = service.models().converse(0, &turns, &self.request);
            let prompt = prompt.map_err(|e| anyhow!("{e}\n{hint}"))?;
            let context = service.models().targets[0].context;
            let room = context.saturating_sub(prompt.target.len());
            let asked = service.submit(vec![Request {
                target: 0,
                prompt,
                sampling: self.sampling,
                max_tokens: service.options().max_tokens.min(room).max(1),
                ignore_eos: false,
                stop: Vec::new(),
                seed: self.seed,
                sample: 0,
                logprobs: None,
                drafting: self.drafting,
                user: String::new(),
            }]);
            asked.map_err(|e| anyhow!("{e}\n{hint}"))?
        };
        let mut text = String::new();
        let mut open = true;
        while let Some((_, event)) = events.blocking_recv() {
            match event {
                Event::Piece(piece) => {
                    text.push_str(&piece.text);
                    open = write_out(&piece.text)?;
                }
                Event::Done(done) => {
                    self.last = Some(done);
                    break;
                }
                Event::Failed(error) => return Err(error.into()),
            }
            if !open || self.stop.load(Ordering::SeqCst) {
                break;
            }
        }
        open &= write_out("\n")?;
        Ok(open.then_some(text))
    }
}
