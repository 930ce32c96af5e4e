//! What is asked of the workers: the base of the plan, the table of candidates, the exact memory of the placement looked at,
//! and its speed at other contexts. Of each only the newest question counts, and one at a time is under way.

use std::sync::Arc;

use crate::engine::plan::PlanRequest;
use crate::ui::link::{Link, Worker};
use crate::ui::state::AppState;
use crate::ui::widgets::Loadable;

use super::model::{Key, Model};
use super::words;

/// The plan's request for what is chosen in the app.
fn request(state: &AppState) -> Option<PlanRequest> {
    Some(PlanRequest {
        runtime: state.chosen_runtime().map(|r| r.name.clone()),
        memory_reserve: Some(state.settings.vram_reserve),
        ..PlanRequest::new(state.model_path()?)
    })
}

/// Asks whatever is not known yet of what the page shows.
pub fn follow(state: &mut AppState, link: &Link) {
    let Some(request) = request(state) else {
        return;
    };
    if state.placement.asked.as_ref() != Some(&request) {
        ask_base(state, link, request);
    }
    let Some(model) = state.placement.ready().cloned() else {
        return;
    };
    ask_rows(state, link, &model);
    if let Some(key) = state.placement.key() {
        ask_judged(state, link, &model, &key);
        let settled = state
            .placement
            .judged
            .as_ref()
            .is_some_and(|(k, _)| *k == key);
        if settled {
            ask_growth(state, link, &model, key);
        }
    }
}

fn ask_base(state: &mut AppState, link: &Link, request: PlanRequest) {
    state.placement.begin(request.clone());
    link.ask(
        Worker::System,
        {
            let request = request.clone();
            move |ports| Model::read(&request, ports).map(Arc::new)
        },
        move |state, _, model| {
            // Another may have been chosen since.
            if state.placement.asked.as_ref() == Some(&request) {
                state.placement.model.answer(model);
            }
        },
    );
}

fn ask_rows(state: &mut AppState, link: &Link, model: &Arc<Model>) {
    let page = &mut state.placement;
    let mut ask = model.base.ask.clone();
    if let Some(looked) = &page.looked {
        ask.context.context = looked.context.context;
    }
    if page.limits.allow_kv_quant {
        ask.cache_types = vec![words::REDUCED[0].to_owned()];
    }
    let key = (ask, page.limits.clone());
    if page.tabled.as_ref() == Some(&key) || page.rows.is_loading() {
        return;
    }
    page.rows.ask();
    page.tabled = Some(key.clone());
    let (of, asked) = (Arc::clone(model), Arc::clone(model));
    link.ask(
        Worker::System,
        move |_| Arc::new(of.rows(&key.0, &key.1)),
        move |state, _, rows| {
            if state.placement.is_of(&asked) {
                state.placement.take_rows(rows);
            } else {
                state.placement.rows = Loadable::Unasked;
            }
        },
    );
}

fn ask_judged(state: &mut AppState, link: &Link, model: &Arc<Model>, key: &Key) {
    let page = &mut state.placement;
    let known = page.judged.as_ref().is_some_and(|(k, _)| k == key);
    if known || page.judging {
        return;
    }
    page.judging = true;
    let (of, asked, key) = (Arc::clone(model), Arc::clone(model), key.clone());
    link.ask(
        Worker::Store,
        move |_| (Arc::new(of.judge(&key)), key),
        move |state, _, (candidate, key)| {
            state.placement.judging = false;
            if state.placement.is_of(&asked) {
                state.placement.judged = Some((key, candidate));
            }
        },
    );
}

fn ask_growth(state: &mut AppState, link: &Link, model: &Arc<Model>, key: Key) {
    let page = &mut state.placement;
    let known = page.growth.as_ref().is_some_and(|(k, _)| *k == key);
    if known || page.growing {
        return;
    }
    page.growing = true;
    let (of, asked) = (Arc::clone(model), Arc::clone(model));
    link.ask(
        Worker::System,
        move |_| (Arc::new(of.growth(&key)), key),
        move |state, _, (steps, key)| {
            state.placement.growing = false;
            if state.placement.is_of(&asked) {
                state.placement.growth = Some((key, steps));
                state.placement.version += 1;
            }
        },
    );
}
