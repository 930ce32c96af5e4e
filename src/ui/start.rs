//! Opens the window: wgpu where an adapter is found, OpenGL where not, one sentence where there is no display.

use std::sync::Arc;

use eframe::egui::ViewportBuilder;
use eframe::egui_wgpu::{WgpuConfiguration, WgpuSetup, WgpuSetupCreateNew};
use eframe::wgpu::PowerPreference;
use eframe::{NativeOptions, Renderer};

use crate::engine::Ports;
use crate::ports::Notice;

use super::app::App;
use super::files::SystemDialogs;

/// Size of a first window, points: the target screens'.
const FIRST_SIZE: [f32; 2] = [1280.0, 800.0];
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
}

/// Opens the app and returns when its window is closed; every job has ended then.
///
/// # Errors
/// No display, nothing to draw with, no threads.
pub fn start(ports: &Ports, notices: &[Notice]) -> Result<(), StartError> {
    match open(Renderer::Wgpu, ports, notices) {
        Err(eframe::Error::Wgpu(error)) => {
            tracing::warn!(%error, "no adapter for wgpu, drawing with OpenGL");
            open(Renderer::Glow, ports, notices).map_err(|error| told(&error))
        }
        other => other.map_err(|error| told(&error)),
    }
}

fn told(error: &eframe::Error) -> StartError {
    match error {
        eframe::Error::WinitEventLoop(_) | eframe::Error::Winit(_) => {
            StartError::NoDisplay(error.to_string())
        }
        eframe::Error::AppCreation(error) => StartError::App(error.to_string()),
        _ => StartError::NoRenderer(error.to_string()),
    }
}

fn open(renderer: Renderer, ports: &Ports, notices: &[Notice]) -> eframe::Result {
    let (ports, notices) = (ports.clone(), notices.to_vec());
    eframe::run_native(
        "Flux",
        options(renderer),
        Box::new(move |cc| {
            let app = App::new(&cc.egui_ctx, ports, notices, Arc::new(SystemDialogs))
                .map_err(|error| error.headline)?;
            Ok(Box::new(app))
        }),
    )
}

fn options(renderer: Renderer) -> NativeOptions {
    let viewport = ViewportBuilder::default()
        .with_title("Flux")
        .with_app_id("flux")
        .with_inner_size(FIRST_SIZE)
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
