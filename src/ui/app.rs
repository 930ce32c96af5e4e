//! The app: `logic` takes in what arrived and carries out what was ordered, `ui` draws (style A1).

use std::sync::Arc;
use std::time::Duration;

use eframe::egui::{self, Context, Ui, Vec2, ViewportCommand};

use crate::engine::Ports;
use crate::engine::message::{Command, EventKind, JobError, Occupies};
use crate::engine::telemetry::forget_old;
use crate::ports::{CancelMode, Notice, NoticeLevel};

use super::command::{self, UiCommand};
use super::files::Files;
use super::link::{Link, Message, Worker};
use super::state::{AppState, Dialog, JobView, Page};
use super::{dialogs, pages, shell, theme};

/// What a page orders; carried out after the frame is drawn.
#[derive(Debug)]
pub enum Order {
    /// As if its key were pressed.
    Ui(UiCommand),
    /// Starts a job.
    Start(Box<Command>),
    /// Stops the measuring job.
    Stop(CancelMode),
    /// Stops the errand.
    StopErrand,
    /// Settings changed: theme, zoom and file follow.
    SettingsChanged,
    /// Leaves, whatever runs.
    Leave,
}

impl Order {
    /// Starts a job.
    pub fn start(command: Command) -> Self {
        Self::Start(Box::new(command))
    }
}

/// What a page may use beside the state.
pub struct Cx<'a> {
    /// Workers to ask.
    pub link: &'a Link,
    /// What is ordered in this frame.
    pub orders: Vec<Order>,
}

impl Cx<'_> {
    /// Orders something.
    pub fn order(&mut self, order: Order) {
        self.orders.push(order);
    }

    /// Shows a page.
    pub fn go(&mut self, page: Page) {
        self.order(Order::Ui(UiCommand::Go(page)));
    }
}

/// The app.
pub struct App {
    link: Link,
    state: AppState,
    begun: bool,
    /// How the sensors are read: every so many milliseconds, stored with sessions or not.
    watching: Option<(u32, bool)>,
    leaving: bool,
    /// Size of the window, points.
    window: Option<Vec2>,
}

impl App {
    /// An app over `ports`; `notices` are what opening them had to say, `files` asks the user for files.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn new(
        ctx: &Context,
        ports: Ports,
        notices: Vec<Notice>,
        files: Arc<dyn Files>,
    ) -> Result<Self, JobError> {
        let link = Link::start(ports, files)?;
        let mut state = AppState {
            notices,
            ..AppState::default()
        };
        let (settings, more) = link.ports().settings.load();
        state.runtime.clone_from(&settings.runtime);
        state.tune.begin_with(&settings);
        state.settings = settings;
        state.notices.extend(more);
        if let Some(notice) = state
            .notices
            .iter()
            .find(|n| n.level == NoticeLevel::Warning)
        {
            let text = notice.text.clone();
            state.complain(text);
        }
        theme::install(ctx, state.settings.reduce_motion);
        ctx.options_mut(|options| options.zoom_with_keyboard = false);
        let app = Self {
            link,
            state,
            begun: false,
            watching: None,
            leaving: false,
            window: None,
        };
        app.follow_settings(ctx);
        app.link.wake(ctx);
        // A folder that cannot be written has been told of already.
        app.link.ask(Worker::Store, forget_old, |_, _, _| {});
        Ok(app)
    }

    /// What it shows; for tests.
    pub fn state(&self) -> &AppState {
        &self.state
    }

    /// The workers; for tests.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Takes one message in.
    pub fn take(&mut self, message: Message) {
        match message {
            Message::Event(event) => {
                let ended = matches!(event.kind, EventKind::Finished(_));
                let job = event.job;
                self.state.apply(event);
                if ended {
                    pages::job_ended(&mut self.state, &self.link, job);
                }
            }
            Message::Answer(apply) => apply(&mut self.state, &self.link),
            Message::Readings(ticks) => self.state.dashboard.live.take(&ticks),
        }
    }

    fn follow_settings(&self, ctx: &Context) {
        let settings = &self.state.settings;
        ctx.set_theme(pages::settings::preference(settings.theme));
        ctx.set_zoom_factor(settings.zoom as f32);
    }

    /// Reads the sensors as the settings say; nothing changes where they are read so already.
    fn watch(&mut self) {
        let settings = &self.state.settings;
        let wanted = (settings.telemetry_interval_ms, settings.store_telemetry);
        if self.watching == Some(wanted) {
            return;
        }
        let interval = Duration::from_millis(u64::from(wanted.0));
        if self.watching.is_none_or(|(before, _)| before != wanted.0) {
            self.state.dashboard.live.begin(wanted.0);
        }
        self.watching = Some(wanted);
        if let Err(error) = self.link.watch(interval, wanted.1) {
            self.state.complain(error.headline);
        }
    }

    fn carry_out(&mut self, order: Order, ctx: &Context) {
        match order {
            Order::Ui(command) => self.command(command, ctx),
            Order::Start(command) => self.start(*command),
            Order::Stop(mode) => {
                if let Some(job) = &mut self.state.job {
                    job.stopping = Some(mode);
                    self.link.cancel(job.id, mode);
                }
            }
            Order::StopErrand => {
                if let Some(job) = &mut self.state.errand {
                    job.stopping = Some(CancelMode::Now);
                    self.link.cancel(job.id, CancelMode::Now);
                }
            }
            Order::SettingsChanged => {
                theme::install(ctx, self.state.settings.reduce_motion);
                self.follow_settings(ctx);
                self.watch();
                pages::settings::store(&self.state, &self.link);
            }
            Order::Leave => {
                self.leaving = true;
                ctx.send_viewport_cmd(ViewportCommand::Close);
            }
        }
    }

    fn start(&mut self, command: Command) {
        let measures = command.occupies() == Occupies::Measuring;
        // A job that fails before it begins never says what it was.
        let kind = command.kind();
        match self.link.start_job(command) {
            Ok(id) if measures => self.state.job = Some(JobView::new(id, kind)),
            Ok(id) => self.state.errand = Some(JobView::new(id, kind)),
            Err(error) => self.state.complain(error.headline),
        }
    }

    fn command(&mut self, command: UiCommand, ctx: &Context) {
        const STEP: f64 = 0.1;
        match command {
            UiCommand::Go(page) => self.enter(page),
            UiCommand::Palette => {
                self.state.dialog = Dialog::Palette {
                    text: String::new(),
                    marked: 0,
                };
            }
            UiCommand::Rescan => pages::machine::ask_scan(&mut self.state, &self.link),
            UiCommand::NewTune => {
                self.state.page = Page::Tune;
                if !pages::tune::begin_anew(&mut self.state) {
                    self.state
                        .complain("This tuning is still running: two would measure each other");
                }
            }
            UiCommand::Search => {
                self.state.page = Page::History;
                self.state.history.focus_search();
            }
            UiCommand::ZoomIn => self.zoom(self.state.settings.zoom + STEP, ctx),
            UiCommand::ZoomOut => self.zoom(self.state.settings.zoom - STEP, ctx),
            UiCommand::ZoomReset => self.zoom(1.0, ctx),
            UiCommand::SwitchTheme => {
                self.state.settings.theme = pages::settings::opposite(ctx.theme());
                self.carry_out(Order::SettingsChanged, ctx);
            }
            UiCommand::Keys => self.state.dialog = Dialog::Keys,
            UiCommand::Quit => ctx.send_viewport_cmd(ViewportCommand::Close),
        }
    }

    /// Shows a page; what another Flux may have changed meanwhile is read again.
    fn enter(&mut self, page: Page) {
        let is_new = self.state.page != page;
        self.state.page = page;
        match page {
            Page::History if is_new => pages::history::refresh(&mut self.state, &self.link),
            Page::Machine if is_new && !self.state.is_busy() => {
                pages::machine::ask_findings(&mut self.state, &self.link);
            }
            _ => {}
        }
    }

    fn zoom(&mut self, factor: f64, ctx: &Context) {
        self.state.settings.zoom = factor;
        self.state.settings.bring_into_bounds();
        self.carry_out(Order::SettingsChanged, ctx);
    }

    /// The window is to close: a running measurement is asked about first.
    fn mind_closing(&mut self, ctx: &Context) {
        if !ctx.input(|input| input.viewport().close_requested()) || self.leaving {
            return;
        }
        if self.state.is_busy() {
            ctx.send_viewport_cmd(ViewportCommand::CancelClose);
            self.state.dialog = Dialog::Closing;
        }
    }

    /// Takes in what arrived.
    pub fn update(&mut self, ctx: &Context) {
        if self.begun {
            // Sensors may take long to open: the first frame does not wait for them.
            self.watch();
        } else {
            self.begun = true;
            pages::machine::ask_scan(&mut self.state, &self.link);
            pages::history::ask(&mut self.state, &self.link);
            pages::tune::ask_broken_off(&self.link);
        }
        for message in self.link.arrived() {
            self.take(message);
        }
        let hidden = ctx.input(|input| input.viewport().visible() == Some(false));
        let live = self.state.page == Page::Dashboard && !self.state.dashboard.is_replaying();
        self.link.look_at_sensors(live && !hidden);
        self.mind_closing(ctx);
        self.window = Some(ctx.viewport_rect().size());
    }

    /// Remembers the window's size for the next start.
    fn remember_window(&mut self) {
        let Some(size) = self.window else { return };
        // Points of the window: the zoom is Flux's own and is kept beside it.
        let size = (size * self.state.settings.zoom as f32).round();
        let size = [size.x as u32, size.y as u32];
        if size != self.state.settings.window_size {
            self.state.settings.window_size = size;
            let saved = self.link.ports().settings.save(&self.state.settings);
            if let Err(error) = saved {
                tracing::warn!(%error, "the window's size is not kept");
            }
        }
    }

    /// Draws, then carries out what was ordered.
    pub fn show(&mut self, ui: &mut Ui) {
        let ctx = ui.ctx().clone();
        if let Some(text) = self.state.clipboard.take() {
            ctx.copy_text(text);
        }
        let mut cx = Cx {
            link: &self.link,
            orders: Vec::new(),
        };
        if self.state.dialog == Dialog::None {
            cx.orders
                .extend(command::pressed(&ctx).into_iter().map(Order::Ui));
        }
        shell::show(ui, &mut self.state, &mut cx);
        dialogs::show(&ctx, &mut self.state, &mut cx);
        let orders = cx.orders;
        let ordered = !orders.is_empty();
        for order in orders {
            self.carry_out(order, &ctx);
        }
        if ordered {
            ctx.request_repaint();
        }
    }
}

impl eframe::App for App {
    fn logic(&mut self, ctx: &egui::Context, _frame: &mut eframe::Frame) {
        self.update(ctx);
    }

    fn ui(&mut self, ui: &mut Ui, _frame: &mut eframe::Frame) {
        self.show(ui);
    }

    fn on_exit(&mut self, _gl: Option<&eframe::glow::Context>) {
        self.remember_window();
    }

    fn clear_color(&self, visuals: &egui::Visuals) -> [f32; 4] {
        visuals.panel_fill.to_normalized_gamma_f32()
    }
}
