//! The counters and adapters of this Windows.
#![expect(
    unsafe_code,
    reason = "the performance counters and the graphics kernel have C interfaces alone"
)]

use std::collections::BTreeMap;
use std::ptr;
use std::time::Duration;

use windows_sys::Wdk::Graphics::Direct3D::{
    D3DKMT_ADAPTER_PERFDATA, D3DKMT_ADAPTER_PERFDATACAPS, D3DKMT_ADAPTERADDRESS,
    D3DKMT_ADAPTERINFO, D3DKMT_CLOSEADAPTER, D3DKMT_ENUMADAPTERS2, D3DKMT_NODE_PERFDATA,
    D3DKMT_QUERY_DEVICE_IDS, D3DKMT_QUERYADAPTERINFO, D3DKMTCloseAdapter, D3DKMTEnumAdapters2,
    D3DKMTQueryAdapterInfo, KMTQAITYPE_ADAPTERADDRESS, KMTQAITYPE_ADAPTERPERFDATA,
    KMTQAITYPE_ADAPTERPERFDATA_CAPS, KMTQAITYPE_NODEPERFDATA, KMTQAITYPE_PHYSICALADAPTERDEVICEIDS,
};
use windows_sys::Win32::System::Performance::{
    PDH_FMT_COUNTERVALUE_ITEM_W, PDH_FMT_DOUBLE, PDH_HCOUNTER, PDH_HQUERY, PDH_MORE_DATA,
    PdhAddEnglishCounterW, PdhCloseQuery, PdhCollectQueryData, PdhGetFormattedCounterArrayW,
    PdhOpenQueryW,
};
use windows_sys::core::PCWSTR;

use crate::domain::telemetry::{AbsentSensor, Metric, SeriesId};
use crate::domain::types::PciAddress;
use crate::ports::TelemetrySource;

use super::super::latest::Latest;
use super::{Adapter, Readings, Snapshot, Told, cards, loads, totals};

/// Between readings of the thread: as often as the engine asks. One takes milliseconds where many programs run.
const PAUSE: Duration = Duration::from_millis(250);
/// Busy share of every engine for every process, percent.
const ENGINES: &str = r"\GPU Engine(*)\Utilization Percentage";
/// Memory of the card in use, bytes.
const DEDICATED: &str = r"\GPU Adapter Memory(*)\Dedicated Usage";
/// System memory in use by the card, bytes.
const SHARED: &str = r"\GPU Adapter Memory(*)\Shared Usage";

/// AMD's and Intel's GPUs.
pub struct WindowsSource {
    latest: Latest<Snapshot>,
    readings: Readings,
}

impl WindowsSource {
    /// Starts its thread; `None` without such a GPU.
    pub fn open() -> Option<Self> {
        if cards(&Adapters::open().read()).is_empty() {
            return None;
        }
        let open = || {
            let (query, adapters) = (Query::open()?, Adapters::open());
            Some(move || snapshot(&query, &adapters))
        };
        Some(Self {
            latest: Latest::of("flux-windows-sensors", PAUSE, open)?,
            readings: Readings::default(),
        })
    }
}

fn snapshot(query: &Query, adapters: &Adapters) -> Option<Snapshot> {
    let [engines, dedicated, shared] = query.read()?;
    Some(Snapshot {
        cards: cards(&adapters.read()),
        loads: loads(&engines),
        dedicated: totals(&dedicated),
        shared: totals(&shared),
    })
}

impl TelemetrySource for WindowsSource {
    fn name(&self) -> &'static str {
        "windows"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        let last = self.latest.get();
        last.map(|snapshot| self.readings.of(&snapshot))
            .unwrap_or_default()
    }

    fn absent(&self) -> Vec<AbsentSensor> {
        let cards = self.latest.get().map(|snapshot| snapshot.cards);
        self.readings.absent(&cards.unwrap_or_default())
    }
}

/// Performance counters.
struct Query {
    handle: PDH_HQUERY,
    counters: [PDH_HCOUNTER; 3],
}

impl Query {
    fn open() -> Option<Self> {
        let mut query = Self {
            handle: ptr::null_mut(),
            counters: [ptr::null_mut(); 3],
        };
        // SAFETY: a null source is the live one; the handle is written before the call returns.
        if unsafe { PdhOpenQueryW(ptr::null(), 0, &raw mut query.handle) } != 0 {
            return None;
        }
        for (path, counter) in [ENGINES, DEDICATED, SHARED].iter().zip(&mut query.counters) {
            let wide: Vec<u16> = path.encode_utf16().chain([0]).collect();
            let path: PCWSTR = wide.as_ptr();
            // SAFETY: the query is open and the path ends with a zero.
            if unsafe { PdhAddEnglishCounterW(query.handle, path, 0, counter) } != 0 {
                return None;
            }
        }
        // Rates are between two readings: this is the first.
        query.collect().then_some(query)
    }

    fn collect(&self) -> bool {
        // SAFETY: the query is open.
        unsafe { PdhCollectQueryData(self.handle) == 0 }
    }

    /// Every instance of every counter.
    fn read(&self) -> Option<[Vec<(String, f64)>; 3]> {
        self.collect().then(|| self.counters.map(values))
    }
}

fn values(counter: PDH_HCOUNTER) -> Vec<(String, f64)> {
    let (mut bytes, mut count) = (0, 0);
    let mut fetch = |items: *mut PDH_FMT_COUNTERVALUE_ITEM_W, bytes: &mut u32| {
        // SAFETY: `items` has room for `bytes` bytes, or is null and `bytes` is 0: then the size needed is told.
        unsafe {
            PdhGetFormattedCounterArrayW(counter, PDH_FMT_DOUBLE, bytes, &raw mut count, items)
        }
    };
    if fetch(ptr::null_mut(), &mut bytes) != PDH_MORE_DATA {
        return Vec::new();
    }
    // The names lie behind the items, in the same room.
    let room = bytes as usize / size_of::<PDH_FMT_COUNTERVALUE_ITEM_W>() + 1;
    let mut items = vec![PDH_FMT_COUNTERVALUE_ITEM_W::default(); room];
    if fetch(items.as_mut_ptr(), &mut bytes) != 0 {
        return Vec::new();
    }
    let told = items
        .iter()
        .take(count as usize)
        .filter(|item| item.FmtValue.CStatus <= 1);
    told.map(|item| {
        // SAFETY: the call has written `count` items, their names end with a zero and live as long as `items`; the value
        // was asked for as a double.
        unsafe { (text(item.szName), item.FmtValue.Anonymous.doubleValue) }
    })
    .collect()
}

/// # Safety
/// `name` points to text that ends with a zero.
unsafe fn text(name: PCWSTR) -> String {
    // SAFETY: nothing behind the zero is read.
    let units = unsafe {
        let length = (0..).take_while(|&i| *name.add(i) != 0).count();
        std::slice::from_raw_parts(name, length)
    };
    String::from_utf16_lossy(units)
}

impl Drop for Query {
    fn drop(&mut self) {
        // SAFETY: the query is open and not used again.
        unsafe { PdhCloseQuery(self.handle) };
    }
}

/// Graphics adapters, open.
struct Adapters(Vec<D3DKMT_ADAPTERINFO>);

impl Adapters {
    fn open() -> Self {
        let mut list = D3DKMT_ENUMADAPTERS2::default();
        // SAFETY: without room the number of adapters is told.
        if unsafe { D3DKMTEnumAdapters2(&raw mut list) } < 0 {
            return Self(Vec::new());
        }
        let mut found = vec![D3DKMT_ADAPTERINFO::default(); list.NumAdapters as usize];
        list.pAdapters = found.as_mut_ptr();
        // SAFETY: there is room for the number told.
        if unsafe { D3DKMTEnumAdapters2(&raw mut list) } < 0 {
            return Self(Vec::new());
        }
        found.truncate(list.NumAdapters as usize);
        Self(found)
    }

    fn read(&self) -> Vec<Adapter> {
        self.0.iter().filter_map(read).collect()
    }
}

impl Drop for Adapters {
    fn drop(&mut self) {
        for adapter in &self.0 {
            let close = D3DKMT_CLOSEADAPTER {
                hAdapter: adapter.hAdapter,
            };
            // SAFETY: the adapter is open and not used again.
            unsafe { D3DKMTCloseAdapter(&raw const close) };
        }
    }
}

fn read(adapter: &D3DKMT_ADAPTERINFO) -> Option<Adapter> {
    let handle = adapter.hAdapter;
    let address: D3DKMT_ADAPTERADDRESS = query(handle, KMTQAITYPE_ADAPTERADDRESS)?;
    let ids: D3DKMT_QUERY_DEVICE_IDS = query(handle, KMTQAITYPE_PHYSICALADAPTERDEVICEIDS)?;
    let caps: Option<D3DKMT_ADAPTER_PERFDATACAPS> = query(handle, KMTQAITYPE_ADAPTERPERFDATA_CAPS);
    let perf: Option<D3DKMT_ADAPTER_PERFDATA> = query(handle, KMTQAITYPE_ADAPTERPERFDATA);
    // Node 0 is the engine for graphics and compute.
    let node: Option<D3DKMT_NODE_PERFDATA> = query(handle, KMTQAITYPE_NODEPERFDATA);
    let mut sensors = BTreeMap::new();
    let mut tell = |metric, value: f64, supported| {
        sensors.insert(metric, Told { value, supported });
    };
    if let Some(perf) = perf {
        let caps = caps.unwrap_or_default();
        // Tenths of °C, Hz.
        tell(
            Metric::Temperature,
            f64::from(perf.Temperature) / 10.0,
            caps.TemperatureMax > 0,
        );
        tell(Metric::FanSpeed, f64::from(perf.FanRPM), caps.MaxFanRPM > 0);
        tell(
            Metric::MemoryClock,
            perf.MemoryFrequency as f64 / 1e6,
            perf.MaxMemoryFrequency > 0,
        );
    }
    if let Some(node) = node {
        tell(
            Metric::CoreClock,
            node.Frequency as f64 / 1e6,
            node.MaxFrequency > 0,
        );
    }
    let luid = adapter.AdapterLuid;
    Some(Adapter {
        luid: u64::from(luid.HighPart.cast_unsigned()) << 32 | u64::from(luid.LowPart),
        pci: PciAddress {
            domain: 0,
            bus: address.BusNumber,
            device: address.DeviceNumber,
            function: address.FunctionNumber,
        },
        vendor: ids.DeviceIds.VendorID.into(),
        sensors,
    })
}

/// What an adapter answers; `T` is the structure that belongs to `kind`.
fn query<T: Default>(adapter: u32, kind: i32) -> Option<T> {
    let mut answer = T::default();
    let mut question = D3DKMT_QUERYADAPTERINFO {
        hAdapter: adapter,
        Type: kind,
        pPrivateDriverData: (&raw mut answer).cast(),
        PrivateDriverDataSize: u32::try_from(size_of::<T>()).ok()?,
    };
    // SAFETY: the answer lives through the call, and its size is told.
    (unsafe { D3DKMTQueryAdapterInfo(&raw mut question) } >= 0).then_some(answer)
}
