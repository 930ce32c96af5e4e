//! Opens the window: wgpu where an adapter is found, OpenGL where not, one sentence where there is no display.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use eframe::egui::{Context, Ui, ViewportBuilder, Visuals};
use eframe::egui_wgpu::{WgpuConfiguration, WgpuSetup, WgpuSetupCreateNew};
use eframe::wgpu::PowerPreference;
use eframe::{NativeOptions, Renderer};

use crate::engine::Ports;
use crate::ports::Notice;

use super::app::App;
use super::files::SystemDialogs;

/// Nothing is cut off down to this size, points.
const LEAST_SIZE: [f32; 2] = [900.0, 600.0];

/// Why there is no window.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No display to open it on.
    #[error("no display to open a window on: {0}")]
    NoDisplay(String),
    /// Neither wgpu nor OpenGL can draw here.
    #[error("the window cannot be drawn: {0}")]
    NoRenderer(String),
    /// A worker could not be started.
    #[error("{0}")]
    App(String),
    /// A page panicked; what was measured is stored, and every child has ended.
    #[error("the window was lost, to a bug or with its display; everything measured is kept")]
    Panicked,
}

/// Opens the app and returns when its window is closed; every job has ended then.
///
/// # Errors
/// No display, nothing to draw with, no threads.
pub fn start(ports: &Ports, notices: &[Notice]) -> Result<(), StartError> {
    // Unwinding drops the app, and with it the engine, before this returns.
    let shown = catch_unwind(AssertUnwindSafe(|| {
        match open(Renderer::Wgpu, ports, notices) {
            Err(eframe::Error::Wgpu(error)) => {
                tracing::warn!(%error, "no adapter for wgpu, drawing with OpenGL");
                open(Renderer::Glow, ports, notices)
            }
            other => other,
        }
    }));
    shown
        .map_err(|_| StartError::Panicked)?
        .map_err(|error| told(&error))
}

fn told(error: &eframe::Error) -> StartError {
    match error {
        eframe::Error::WinitEventLoop(_) | eframe::Error::Winit(_) => {
            tracing::debug!(%error, "no event loop");
            StartError::NoDisplay(display())
        }
        eframe::Error::AppCreation(error) => StartError::App(error.to_string()),
        _ => StartError::NoRenderer(error.to_string()),
    }
}

/// What is wrong with the display; the window library's own words name its source files.
fn display() -> String {
    let set = ["WAYLAND_DISPLAY", "DISPLAY"].into_iter().find_map(|name| {
        let value = std::env::var(name).ok().filter(|v| !v.is_empty())?;
        Some(format!("{name}={value} does not answer"))
    });
    let unset = if cfg!(target_os = "linux") {
        "neither DISPLAY nor WAYLAND_DISPLAY is set"
    } else {
        "the system gives none"
    };
    set.unwrap_or_else(|| unset.to_owned())
}

fn open(renderer: Renderer, ports: &Ports, notices: &[Notice]) -> eframe::Result {
    let begun = Instant::now();
    let (ports, notices) = (ports.clone(), notices.to_vec());
    let (settings, _) = ports.settings.load();
    eframe::run_native(
        "Flux",
        options(renderer, settings.window_size),
        Box::new(move |cc| {
            let app = App::new(&cc.egui_ctx, ports, notices, Arc::new(SystemDialogs))
                .map_err(|error| error.headline)?;
            Ok(Box::new(Timed {
                app,
                begun,
                frames: 0,
            }))
        }),
    )
}

/// The app with a word in the log about its frames, for those who ask for it with `-v`.
struct Timed {
    app: App,
    begun: Instant,
    frames: u64,
}

impl eframe::App for Timed {
    fn logic(&mut self, ctx: &Context, frame: &mut eframe::Frame) {
        self.frames += 1;
        let ms = self.begun.elapsed().as_millis();
        match self.frames {
            // The next frame begins when this one is on the screen.
            1 if tracing::enabled!(tracing::Level::DEBUG) => ctx.request_repaint(),
            2 => tracing::debug!("first frame after {ms} ms"),
            number => {
                let unanswered = self.app.link().unanswered();
                tracing::trace!(number, ms, unanswered, "frame");
            }
        }
        self.app.logic(ctx, frame);
    }

    fn ui(&mut self, ui: &mut Ui, frame: &mut eframe::Frame) {
        self.app.ui(ui, frame);
    }

    fn on_exit(&mut self, gl: Option<&eframe::glow::Context>) {
        self.app.on_exit(gl);
    }

    fn clear_color(&self, visuals: &Visuals) -> [f32; 4] {
        self.app.clear_color(visuals)
    }
}

fn options(renderer: Renderer, [width, height]: [u32; 2]) -> NativeOptions {
    let viewport = ViewportBuilder::default()
        .with_title("Flux")
        .with_app_id("flux")
        .with_inner_size([width as f32, height as f32])
        .with_min_inner_size(LEAST_SIZE);
    NativeOptions {
        viewport,
        renderer,
        // The second renderer needs the event loop again.
        run_and_return: true,
        wgpu_options: WgpuConfiguration {
            wgpu_setup: WgpuSetup::CreateNew(WgpuSetupCreateNew {
                // The GPU that is measured has better things to do than to draw this window.
                power_preference: PowerPreference::LowPower,
                ..WgpuSetupCreateNew::without_display_handle()
            }),
            ..WgpuConfiguration::default()
        },
        ..NativeOptions::default()
    }
}
