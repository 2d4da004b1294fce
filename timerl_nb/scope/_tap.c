/* Lanes and taps in C: what pure.py does, for a fraction of the time. That says what it means.

   An edge goes to the segment that is mapped now; Python is called for the next one, for the number of a tap's name,
   and where a thread has no lane yet. All of it runs under the interpreter's lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>
#include <time.h>

#define NAME_BITS 24
#define DEPTH 1024 /* calls of libraries from inside of others; those further inside are not recorded */
enum { CALL_ENTER, CALL_EXIT };

typedef struct { uint64_t ts; uint32_t top; uint16_t kind, depth; } Edge;

typedef struct {
    PyObject_HEAD
    Edge *at, *end;
    Py_buffer view;     /* of the segment */
    PyObject *next;     /* makes a segment */
    uint32_t calls[DEPTH];
    int depth;
    char silent;        /* taps call through */
    char inside;        /* of an operation, so that none is guessed */
} Lane;

typedef struct {
    PyObject_HEAD
    PyObject *function, *taps, *name, *weak, *guess; /* the last is called in place of it, where no operation is open */
    vectorcallfunc vectorcall;
    uint64_t epoch;     /* of the recording that `top` is of */
    uint32_t library, top;
} Tap;

static _Thread_local struct { Lane *lane; uint64_t epoch; } here;
static uint64_t epoch = 1;
static int recording = 0;
static PyObject *this_lane, *number; /* Python's, of the recording that goes on */

/* --- lanes ------------------------------------------------------------------------------------- */

static int next_segment(Lane *lane) {
    PyObject *segment = PyObject_CallNoArgs(lane->next);
    if (!segment) return -1;
    PyBuffer_Release(&lane->view);
    lane->at = lane->end = NULL;
    int bad = PyObject_GetBuffer(segment, &lane->view, PyBUF_WRITABLE);
    Py_DECREF(segment);
    if (bad) return -1;
    lane->at = lane->view.buf;
    lane->end = lane->at + lane->view.len / sizeof(Edge);
    return 0;
}

static inline int put(Lane *lane, uint32_t top, uint16_t kind, int depth, uint64_t ts) {
    if (__builtin_expect(lane->at == lane->end, 0) && next_segment(lane) < 0) return -1;
    if (!ts) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        ts = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
    }
    Edge *edge = lane->at++;
    edge->top = top;
    edge->kind = kind;
    edge->depth = (uint16_t)(depth < 0xFFFF ? depth : 0xFFFF);
    __atomic_store_n(&edge->ts, ts, __ATOMIC_RELEASE); /* last: it says that the edge is whole */
    return 0;
}

static inline int enter(Lane *lane, uint32_t top, uint64_t ts) {
    if (put(lane, top, CALL_ENTER, lane->depth + 1, ts) < 0) return -1;
    lane->calls[lane->depth++] = top;
    return 0;
}

static inline int leave(Lane *lane) {
    if (!lane->depth) return 0;
    lane->depth--;
    return put(lane, lane->depth ? lane->calls[lane->depth - 1] : 0, CALL_EXIT, lane->depth, 0);
}

static inline uint32_t library_on(Lane *lane) {
    return lane->depth ? lane->calls[lane->depth - 1] >> NAME_BITS : 0;
}

static PyObject *lane_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    PyObject *next;
    if (!PyArg_ParseTuple(args, "O", &next)) return NULL;
    Lane *lane = (Lane *)type->tp_alloc(type, 0);
    if (lane) lane->next = Py_NewRef(next);
    return (PyObject *)lane;
}
static int lane_traverse(Lane *lane, visitproc visit, void *arg) { Py_VISIT(lane->next); return 0; }
static int lane_clear(Lane *lane) { Py_CLEAR(lane->next); return 0; }
static void lane_dealloc(Lane *lane) {
    PyObject_GC_UnTrack(lane);
    if (here.lane == lane) here.lane = NULL;
    PyBuffer_Release(&lane->view);
    Py_CLEAR(lane->next);
    Py_TYPE(lane)->tp_free((PyObject *)lane);
}
static PyObject *done(int bad) { if (bad < 0) return NULL; Py_RETURN_NONE; }
static PyObject *lane_put(Lane *lane, PyObject *args) {
    unsigned int top, kind; int depth; unsigned long long ts = 0;
    if (!PyArg_ParseTuple(args, "IIi|K", &top, &kind, &depth, &ts)) return NULL;
    return done(put(lane, top, (uint16_t)kind, depth, ts));
}
static PyObject *lane_called(Lane *lane, PyObject *args) {
    unsigned int top; unsigned long long ts = 0;
    if (!PyArg_ParseTuple(args, "I|K", &top, &ts)) return NULL;
    if (lane->depth == DEPTH) return PyErr_SetString(PyExc_OverflowError, "too many calls are open"), NULL;
    return done(enter(lane, top, ts));
}
static PyObject *lane_returned(Lane *lane, PyObject *_) { return done(leave(lane)); }
static PyObject *lane_library(Lane *lane, void *_) { return PyLong_FromLong(library_on(lane)); }
static PyObject *lane_install(Lane *lane, PyObject *_) {
    here.lane = lane;
    here.epoch = epoch;
    Py_RETURN_NONE;
}
static PyMethodDef lane_methods[] = {
    {"put", (PyCFunction)lane_put, METH_VARARGS, "Append an edge: top, kind, depth, and when (0 is now)."},
    {"called", (PyCFunction)lane_called, METH_VARARGS, "A library is called: top, and when."},
    {"returned", (PyCFunction)lane_returned, METH_NOARGS, "What was called last has returned."},
    {"install", (PyCFunction)lane_install, METH_NOARGS, "This is the lane of the thread that asks."},
    {0}};
static PyGetSetDef lane_getset[] = {{"library", (getter)lane_library, NULL, "The one on top."}, {0}};
static PyMemberDef lane_members[] = {
    {"silent", T_BOOL, offsetof(Lane, silent), 0, "Whether taps of its thread call through."},
    {"inside", T_BOOL, offsetof(Lane, inside), 0, "Whether an operation is open."}, {0}};
static PyTypeObject LaneType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "timerl_nb.scope._tap.Lane",
    .tp_basicsize = sizeof(Lane), .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = lane_new, .tp_dealloc = (destructor)lane_dealloc, .tp_traverse = (traverseproc)lane_traverse,
    .tp_clear = (inquiry)lane_clear, .tp_methods = lane_methods, .tp_getset = lane_getset,
    .tp_members = lane_members,
};

/* --- taps -------------------------------------------------------------------------------------- */

/* What Python was called for has raised an error: nothing is recorded any more, and the program goes on. */
static void fail(void) {
    recording = 0;
    PyErr_WriteUnraisable(NULL);
}

static int ready(Tap *self) {
    if (here.epoch != epoch || !here.lane) {
        PyObject *made = PyObject_CallNoArgs(this_lane); /* which installs it */
        if (!made) return -1;
        Py_DECREF(made);
        if (here.epoch != epoch || !here.lane) return 1; /* nothing is recorded */
    }
    if (self->epoch != epoch) {
        PyObject *found = PyObject_CallFunction(number, "IO", self->library, self->name);
        if (!found) return -1;
        self->top = (uint32_t)PyLong_AsUnsignedLong(found);
        self->epoch = epoch;
        Py_DECREF(found);
    }
    return 0;
}

static PyObject *tap_call(PyObject *o, PyObject *const *args, size_t n, PyObject *named) {
    Tap *self = (Tap *)o;
    if (!recording) return PyObject_Vectorcall(self->function, args, n, named);
    if (here.epoch != epoch || !here.lane || self->epoch != epoch) {
        int found = ready(self);
        if (found < 0) fail();
        if (found) return PyObject_Vectorcall(self->function, args, n, named);
    }
    Lane *lane = here.lane;
    if (self->guess && !lane->inside) return PyObject_Vectorcall(self->guess, args, n, named);
    if (lane->silent || lane->depth == DEPTH || library_on(lane) == self->library)
        return PyObject_Vectorcall(self->function, args, n, named);
    uint64_t begun = epoch;
    if (enter(lane, self->top, 0) < 0) {
        fail();
        return PyObject_Vectorcall(self->function, args, n, named);
    }
    PyObject *made = PyObject_Vectorcall(self->function, args, n, named);
    /* it may have ended the recording, or be another process */
    if (recording && begun == epoch && here.lane == lane) {
        PyObject *type, *value, *trace; /* what the function has raised stays */
        if (!made) PyErr_Fetch(&type, &value, &trace);
        if (leave(lane) < 0) fail();
        if (!made) PyErr_Restore(type, value, trace);
    }
    return made;
}

static PyTypeObject TapType, MethodTapType;
static int is_tap(PyObject *o) { return Py_TYPE(o) == &TapType || Py_TYPE(o) == &MethodTapType; }
static PyObject *tap_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    PyObject *taps, *function, *name; unsigned int library;
    if (!PyArg_ParseTuple(args, "OOUI", &taps, &function, &name, &library)) return NULL;
    Tap *self = (Tap *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->taps = Py_NewRef(taps);
    self->function = Py_NewRef(function);
    self->name = Py_NewRef(name);
    self->library = library;
    self->vectorcall = tap_call;
    return (PyObject *)self;
}
static int tap_traverse(Tap *self, visitproc visit, void *arg) {
    Py_VISIT(self->function); Py_VISIT(self->taps); Py_VISIT(self->guess);
    return 0;
}
static int tap_clear(Tap *self) {
    Py_CLEAR(self->function); Py_CLEAR(self->taps); Py_CLEAR(self->guess);
    return 0;
}
static void tap_dealloc(Tap *self) {
    PyObject_GC_UnTrack(self);
    if (self->weak) PyObject_ClearWeakRefs((PyObject *)self);
    tap_clear(self);
    Py_CLEAR(self->name);
    Py_TYPE(self)->tp_free((PyObject *)self);
}
static PyObject *tap_get(PyObject *self, PyObject *instance, PyObject *type) {
    if (!instance || instance == Py_None || Py_TYPE(self) != &MethodTapType) return Py_NewRef(self);
    return PyMethod_New(self, instance);
}
static PyObject *tap_getattro(PyObject *o, PyObject *name) {
    PyObject *found = PyObject_GenericGetAttr(o, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Tap *)o)->function, name);
}
static PyObject *tap_class(Tap *self, void *_) { return Py_NewRef(Py_TYPE(self->function)); }
static PyObject *tap_same(PyObject *o, void *name) { return PyObject_GetAttrString(((Tap *)o)->function, name); }
static PyObject *tap_repr(PyObject *o) { return PyObject_Repr(((Tap *)o)->function); }
static Py_hash_t tap_hash(PyObject *o) { return PyObject_Hash(((Tap *)o)->function); }
static PyObject *tap_compare(PyObject *a, PyObject *b, int how) {
    return PyObject_RichCompare(is_tap(a) ? ((Tap *)a)->function : a, is_tap(b) ? ((Tap *)b)->function : b, how);
}
static PyObject *tap_reduce(PyObject *o, PyObject *protocol) {
    return PyObject_CallMethod(((Tap *)o)->function, "__reduce_ex__", "O", protocol);
}
static PyObject *tap_itself(PyObject *o, PyObject *_) { return Py_NewRef(o); }
static PyMethodDef tap_methods[] = {
    {"__reduce_ex__", tap_reduce, METH_O}, {"__copy__", tap_itself, METH_NOARGS},
    {"__deepcopy__", tap_itself, METH_O}, {0}};
static PyGetSetDef tap_getset[] = {
    {"__class__", (getter)tap_class}, {"__doc__", tap_same, NULL, NULL, "__doc__"},
    {"__module__", tap_same, NULL, NULL, "__module__"}, {0}};
static PyMemberDef tap_members[] = {
    {"_function", T_OBJECT, offsetof(Tap, function), READONLY},
    {"_taps", T_OBJECT, offsetof(Tap, taps), READONLY}, {"_guess", T_OBJECT, offsetof(Tap, guess), 0}, {0}};
static PyTypeObject TapType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "timerl_nb.scope._tap.Tap",
    .tp_basicsize = sizeof(Tap),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = tap_new, .tp_dealloc = (destructor)tap_dealloc, .tp_traverse = (traverseproc)tap_traverse,
    .tp_clear = (inquiry)tap_clear, .tp_call = PyVectorcall_Call, .tp_vectorcall_offset = offsetof(Tap, vectorcall),
    .tp_getattro = tap_getattro, .tp_repr = tap_repr, .tp_hash = tap_hash, .tp_richcompare = tap_compare,
    .tp_weaklistoffset = offsetof(Tap, weak), .tp_methods = tap_methods, .tp_getset = tap_getset,
    .tp_members = tap_members, .tp_descr_get = tap_get,
};

/* --- the module -------------------------------------------------------------------------------- */

static PyObject *start(PyObject *module, PyObject *args) {
    PyObject *lane, *top;
    if (!PyArg_ParseTuple(args, "OO", &lane, &top)) return NULL;
    Py_XSETREF(this_lane, Py_NewRef(lane));
    Py_XSETREF(number, Py_NewRef(top));
    epoch++;
    recording = 1;
    Py_RETURN_NONE;
}
static PyObject *stop(PyObject *module, PyObject *_) {
    recording = 0;
    epoch++;
    Py_CLEAR(this_lane); Py_CLEAR(number);
    Py_RETURN_NONE;
}
static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, "Taps record: what makes a thread's lane, and a name's number."},
    {"stop", stop, METH_NOARGS, "Taps call through."}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_tap", "Lanes and taps in C.", -1, methods};

PyMODINIT_FUNC PyInit__tap(void) {
    MethodTapType = TapType;
    MethodTapType.tp_name = "timerl_nb.scope._tap.MethodTap";
    MethodTapType.tp_flags |= Py_TPFLAGS_METHOD_DESCRIPTOR; /* called with its instance: no bound method is made */
    if (PyType_Ready(&LaneType) < 0 || PyType_Ready(&TapType) < 0 || PyType_Ready(&MethodTapType) < 0) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (!made || PyModule_AddObjectRef(made, "Lane", (PyObject *)&LaneType) < 0
        || PyModule_AddObjectRef(made, "Tap", (PyObject *)&TapType) < 0
        || PyModule_AddObjectRef(made, "MethodTap", (PyObject *)&MethodTapType) < 0) return NULL;
    return made;
}
