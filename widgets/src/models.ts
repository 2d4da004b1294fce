// View-models as Python sends them; widgets/models.py writes this from its dataclasses.
import type { Numbers } from "./shared/buffers";

export interface Amount {
  part: "carried" | "temporaries" | "constants" | "needed" | "process";
  bytes: number;
  known: "planned" | "laid out" | "estimated" | "given" | "stated" | "measured";
  about: string;
}

export interface AtInstants {
  at: Numbers;
  statement: Numbers;
  line: Numbers;
}

export interface BoundRow {
  name: string;
  value: number;
  dims: string[];
  until: string | null;
  dynamic: boolean;
}

export interface BufferAxis {
  dim: string;
  size: number;
  first: number;
  ring: boolean;
  prologue: number;
}

export interface BufferRow {
  name: string;
  tensors: StoredTensor[];
  axes: BufferAxis[];
  bytes: number;
  why: string;
  shared: SharedBuffer[];
  layout: string;
}

export interface CandidateRow {
  name: string;
  doc: string;
  taken: boolean;
  forecast: Forecast | NoForecast | null;
}

export interface Chapter {
  stage: string;
  op_ids: number[];
  kernels: number[];
  steps: Numbered[];
  more: number;
  reason: string | null;
}

export interface Chosen {
  what: string;
  taken: string;
  why: string;
  candidates: CandidateRow[];
}

export interface Column {
  name: string;
  unit: string;
}

export interface ComparisonView {
  view: "comparison";
  titles: [string, string];
  spaces: [IterationSpaceView, IterationSpaceView];
  memories: [MemoryView, MemoryView];
  axes: Ends;
  same_graph: boolean;
  options: Differing[];
  bounds: Differing[];
  operations: DifferingCount[];
  kernels: DifferingKernel[];
  stores: DifferingStore[];
  seconds: Cost[];
  peak: [number, number];
  host_peak: [number, number];
  loops: LineOfBoth[];
}

export interface Cost {
  stage: string;
  seconds: [number | null, number | null];
}

export interface CostRow {
  op_ids: number[];
  value: number;
}

export interface CostView {
  view: "cost";
  measures: Measure[];
}

export interface Curve {
  at: Numbers;
  values: Numbers;
  is_late: boolean;
}

export interface Device {
  name: string;
  busy: number;
  memory: number;
  total: number;
  watts: number | null;
}

export interface Differing {
  name: string;
  values: [unknown, unknown];
}

export interface DifferingCount {
  stage: string;
  kind: string;
  counts: [number, number];
}

export interface DifferingKernel {
  name: string;
  operations: [number | null, number | null];
  outputs: [number | null, number | null];
}

export interface DifferingStore {
  name: string;
  kinds: [string | null, string | null];
  bytes: [number | null, number | null];
}

export interface EarlierRun {
  name: string;
  curves: Record<string, Curve>;
}

export interface Edge {
  id: string;
  kind: "read" | "order";
  tail: string;
  head: string;
  label: string;
  count: number;
  reads: Flow[];
}

export interface Ends {
  time: number;
  up: number;
  bytes: number;
}

export interface Flow {
  index: string;
  cond: string;
}

export interface Forecast {
  peak: number;
  launches: number;
  seconds: number;
  swapped: number;
  beside: number;
  buffers: number;
  is_lowered: boolean;
  each: number;
}

export interface Found {
  stage: string;
  op_ids: number[];
}

export interface Frame {
  number: number;
  state: string;
  reason: string;
  turn: number;
  turns: number | null;
  elapsed: number;
  turns_per_second: number;
  steps_per_second: number | null;
  busy: number | null;
  curves: Record<string, Curve>;
  held: MeasuredBytes | null;
  buffers: number | null;
  compiling: number | null;
  process: Process;
  devices: Device[];
  error: string | null;
  outputs: Record<string, string>;
  compiling_part: string;
}

export interface GraphView {
  view: "graph";
  name: string;
  nodes: Node[];
  clusters: OpenCluster[];
  edges: Edge[];
  folded: string[];
}

export interface HeatMap {
  name: string;
  op_ids: number[];
  dtype: string;
  rows: HeatMapAxis;
  columns: HeatMapAxis;
  cells: Numbers;
  marks: Numbers;
  least: number | null;
  most: number | null;
  nans: number;
  infinities: number;
}

export interface HeatMapAxis {
  name: string;
  size: number;
  labels: string[];
}

export interface Inspected {
  op_id: number;
  op_ids: number[];
  name: string;
  kind: string;
  doc: string;
  attrs: string;
  region: string[];
  domain: string[];
  where: string;
  tensor: string | null;
  stage: string;
  kernel: number | null;
  outputs: Made[];
  source: Source;
  reads: Neighbour[];
  readers: Neighbour[];
  history: Chapter[];
  schedule: Scheduled | null;
  stores: Stored[];
}

export interface InspectorView {
  view: "inspector";
  ops: Inspected[];
}

export interface IterationSpaceView {
  view: "space";
  turn: Turn;
  statements: Statement[];
  instants: AtInstants;
}

export interface LaunchRow {
  op_id: number;
  op_ids: number[];
  name: string;
  region: string[];
  colour: string;
  launches: number;
  seconds: number | null;
  columns: Numbers;
  counts: Numbers;
}

export interface LaunchView {
  view: "launches";
  turn: Turn;
  first: Numbers;
  rows: LaunchRow[];
  how: "estimated" | "measured" | "measured by call";
  begin: Numbers;
}

export interface Line {
  line: number;
  depth: number;
  text: string;
  sort: string;
  op_ids: number[];
  parent: number;
  statement: number | null;
  lifetime: string | null;
  tensors: string[];
  region: string[];
  inside: number[];
  tokens: [number, number, string][];
}

export interface LineOfBoth {
  text: string;
  lines: [number | null, number | null];
  sign: string;
}

export interface Lineage {
  view: "lineage";
  stages: StageIds[];
}

export interface LiveBytes {
  first: number;
  last: number;
  bytes: Numbers;
  predicted: Numbers;
}

export interface LiveTensor {
  tensor: [number, number];
  name: string;
  op_ids: number[];
  read_by: number[];
  colour: string;
  life: number;
  store: string;
  why: string;
  place: string;
  line: string;
  value_bytes: number;
  held: Numbers;
  last_read_by: number[];
}

export interface LiveTensorAt {
  name: string;
  bytes: number;
  values: number;
}

export interface Load {
  at: Numbers;
  busy: Numbers;
  host: Numbers;
  resident: Numbers;
  on_device: Numbers;
}

export interface LoopView {
  view: "loop";
  lines: Line[];
}

export interface Made {
  name: string;
  shape: (number | string)[];
  dtype: string;
  domain: string[];
  reduce: string | null;
  point_bytes: number;
  points: number;
  bytes: number;
}

export interface MappingCell {
  manager: string;
  learner: string;
  seconds: number | null;
  speed: number | null;
  terms: MappingTerm[];
  is_chosen: boolean;
  is_modelled: boolean;
  why_not: string;
}

export interface MappingSetting {
  name: string;
  values: string[];
  at: number;
}

export interface MappingTerm {
  name: string;
  seconds: number;
  counts: boolean;
}

export interface MappingView {
  view: "mapping";
  formula: string;
  devices: string[];
  settings: MappingSetting[];
  cells: MappingCell[];
  memory: string;
  traffic: MappingTerm[];
  summary: string;
  text: string;
}

export interface Measure {
  name: string;
  unit: string;
  rows: CostRow[];
}

export interface MeasuredBytes {
  live: number;
  peak: number;
  first: number;
  last: number;
  bytes: Numbers;
}

export interface MemoryView {
  view: "memory";
  turn: Turn;
  first: Numbers;
  at: Numbers;
  tensors: LiveTensor[];
  lives: TensorLiveRanges[];
  readers: Reader[];
  bytes: Numbers;
  host: Numbers;
  gathered: Numbers;
  budget: number | null;
  run: WholeRun | null;
  peak: Peak;
  program_peak: ProgramPeak;
  saved_by: Record<string, string>;
  host_peak: number;
}

export interface Neighbour {
  op_id: number;
  name: string;
  slot: number;
  index: string;
  cond: string;
}

export interface NoForecast {
  problem: string;
}

export interface Node {
  id: string;
  label: string;
  kind: string;
  op_ids: number[];
  region: string[];
  cluster: string;
  place: string;
  text: string;
  values: Value[];
  name: string;
  folded: boolean;
  detail: string;
}

export interface Numbered {
  number: number;
  text: string;
}

export interface OpenCluster {
  id: string;
  label: string;
  sort: string;
  parent: string;
  op_ids: number[];
}

export interface Option {
  name: string;
  kind: "bool" | "choice" | "dims" | "blocks" | "bytes" | "int";
  value: unknown;
  default: unknown;
  choices: unknown[];
  doc: string;
  stage: string;
}

export interface OutlineLine {
  text: string;
  depth: number;
  op_ids: number[];
  note: string;
  number: number;
  figures: (number | null)[];
  folded: boolean;
  detail: string;
}

export interface OutlineView {
  view: "outline";
  stage: string;
  lines: OutlineLine[];
  columns: Column[];
}

export interface Peak {
  bytes: number;
  instant: number;
  holders: LiveTensorAt[];
}

export interface PipelineView {
  view: "pipeline";
  stages: StageRow[];
  options: Option[];
  bounds: BoundRow[];
  seconds: number;
}

export interface Process {
  cpu: number;
  cores: number;
  resident: number | null;
  on_device: number | null;
}

export interface ProgramPeak {
  bytes: number;
  time: number;
  moment: string;
  holders: LiveTensorAt[];
}

export interface Reader {
  op_id: number;
  name: string;
}

export interface Refusal {
  reason: string;
  op_ids: number[];
}

export interface Rewrite {
  number: number;
  rule: string;
  before: number[];
  after: number[];
  note: string;
  text: string;
  op_ids: number[];
}

export interface Rule {
  rule: string;
  count: number;
  text: string;
  page: string;
}

export interface RunView {
  view: "run";
  frame: Frame;
  predicted_peak: number;
  held: LiveBytes | null;
  load: Load;
  over: TurnBytes;
  amounts: Amount[];
  earlier: EarlierRun[];
}

export interface Scheduled {
  statement: string;
  op_id: number;
  time: string[];
  lines: number[];
}

export interface ScopeDevice {
  process: number;
  number: number;
  name: string;
  looked: number;
  busy: number;
  ran: ScopeRan[];
}

export interface ScopeKey {
  name: string;
  colour: string;
  hatch: string;
}

export interface ScopeLane {
  process: number;
  thread: number;
  name: string;
  edges: number;
}

export interface ScopeOperation {
  name: string;
  is_guessed: boolean;
  count: number;
  transitions: ScopeTransition[];
  op_ids: number[];
  colour: string;
}

export interface ScopePhase {
  name: string;
  count: number;
  colour: string;
}

export interface ScopeProcess {
  number: number;
  parent: number;
  depth: number;
  command: string;
  threads: number;
  begin: number;
  end: number | null;
}

export interface ScopeRan {
  sort: string;
  name: string;
  count: number;
  ns: number;
}

export interface ScopeTime {
  process: number;
  phase: number;
  operation: number;
  library: string;
  used: string;
  ns: number;
}

export interface ScopeTransition {
  left: string;
  to: string;
  count: number;
}

export interface ScopeView {
  view: "scope";
  total: number;
  end: number;
  processes: ScopeProcess[];
  phases: ScopePhase[];
  operations: ScopeOperation[];
  libraries: ScopeKey[];
  sorts: ScopeKey[];
  times: ScopeTime[];
  lanes: ScopeLane[];
  devices: ScopeDevice[];
  overview: StretchView;
  remark: string;
}

export interface SearchView {
  view: "search";
  query: string;
  kind: string | null;
  region: string | null;
  changed: boolean;
  stages: Found[];
  kinds: string[];
  regions: string[];
}

export interface SharedBuffer {
  how: "starts from" | "in place of" | "takes over";
  name: string;
  op_ids: number[];
  why: string;
}

export interface ShownStrategy {
  name: string;
  provenance: string;
  is_chosen: boolean;
  speed: StrategySpeed | null;
  calls: number | null;
  launches: number | null;
  copies: number | null;
  why_not: string;
}

export interface Source {
  place: string;
  line: number;
  lines: SourceLine[];
}

export interface SourceLine {
  number: number;
  text: string;
  marked: boolean;
}

export interface Spans {
  begin: Numbers;
  end: Numbers;
  name: Numbers;
}

export interface StageIds {
  name: string;
  ids: number[] | null;
  from: Record<string, number[]>;
  kernels: Record<string, number[]>;
}

export interface StageRow {
  name: string;
  ran: boolean;
  seconds: number;
  known: boolean;
  summary: string;
  changed: boolean | null;
  operations: number | null;
  option: string | null;
  is_on: boolean | null;
  off: unknown;
  on: unknown;
}

export interface Statement {
  op_id: number;
  op_ids: number[];
  name: string;
  region: string[];
  role: string;
  colour: string;
  shape: "circle" | "triangle" | "diamond" | "square" | "cross";
  points: number;
  each: boolean;
  times: Numbers;
  low: Numbers;
  tall: number;
  coordinates: Record<string, Numbers>;
}

export interface StepsView {
  view: "steps";
  stage: string;
  rules: Rule[];
  steps: Rewrite[];
  refused: Refusal[];
  choices: Chosen[];
}

export interface Stored {
  tensor: [number, number];
  name: string;
  kind: string;
  slots: number;
  value_bytes: number;
  bytes: number;
  lifetime: string;
  born: string;
  last_readers: string[];
  why: string;
}

export interface StoredTensor {
  tensor: [number, number];
  name: string;
  op_ids: number[];
  read_by: number[];
  last_read_by: string[];
  colour: string;
  kind: string;
  values: number;
  value_bytes: number;
  why: string;
  waits: string[];
  not_given: string[];
}

export interface StoresView {
  view: "stores";
  how: string;
  executor: "xla" | "interpreter";
  places: BufferRow[];
  amounts: Amount[];
  bytes: number;
}

export interface StrategiesView {
  view: "strategies";
  name: string;
  envs: number;
  steps: number;
  rows: ShownStrategy[];
  summary: string;
}

export interface StrategySpeed {
  median: number;
  least: number;
  greatest: number;
}

export interface StreamLaunch {
  kernel: number;
  name: string;
  line: string;
  op_ids: number[];
  lane: number;
  slot: number;
  upstream: number[];
  entered: number;
  started: number;
  ended: number;
}

export interface StreamRun {
  how: string;
  streams: number;
  size: number;
  us: number;
  utilization: number;
  launches: StreamLaunch[];
  left_out: number;
}

export interface StreamView {
  view: "streams";
  name: string;
  runs: StreamRun[];
}

export interface Stretch {
  first: number;
  last: number;
  bytes: Numbers;
  turns: number;
  more: number;
  note: string;
}

export interface StretchDevice {
  device: number;
  shares: Numbers;
  spans: Spans;
  operations: Numbers;
}

export interface StretchLane {
  lane: number;
  tracks: Track[];
}

export interface StretchView {
  view: "stretch";
  begin: number;
  end: number;
  width: number;
  lanes: StretchLane[];
  devices: StretchDevice[];
  names: string[];
}

export interface SweepChart {
  title: string;
  is_bytes: boolean;
  values: (number | null)[];
}

export interface SweepView {
  view: "sweep";
  function: string;
  argument: string;
  points: SweptPoint[];
  of: number;
  measured: string[];
  charts: SweepChart[];
  summary: string;
}

export interface SweptPoint {
  label: string;
  peak: number | null;
  launches: number | null;
  compile_seconds: number | null;
  turn_seconds: number | null;
  saved_by: string[];
  problem: string;
  value: number | string | boolean | null;
  texts: string[];
}

export interface TensorLiveRanges {
  name: string;
  domain: string[];
  born: Numbers;
  dies: Numbers;
  reader: Numbers;
  points: Numbers;
  offloads: Numbers;
  fetches: Numbers;
  moved: number;
}

export interface Track {
  kind: "phase" | "operation" | "library";
  shares: Numbers;
  spans: Spans;
}

export interface Turn {
  dim: string | null;
  fixed: Record<string, number>;
  problem: string;
  bounds: Record<string, number>;
  size: number;
  count: number;
}

export interface TurnBytes {
  turn: number;
  first: Numbers;
  last: Numbers;
  bytes: Numbers;
  reason: string;
}

export interface Value {
  name: string;
  domain: string[];
  shape: string[];
  dtype: string;
  bytes: number | null;
}

export interface ValuesView {
  view: "values";
  at: string;
  maps: HeatMap[];
  missing: string[];
}

export interface WholeRun {
  points: number;
  stretches: Stretch[];
  first: number;
  last: number;
}
