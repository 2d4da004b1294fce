/* Thread timelines, annotations and function wrappers in C: the fast version of python_recorder.py, whose docstrings
   define the behaviour.

   Events are written to a memory-mapped segment. Python is called for the next segment, for the number of a name, for
   the timeline of a new thread, at the end of a block, and for annotations with an exit out of order. All code runs
   under the global interpreter lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <structmember.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NAME_BITS 24
#define DEPTH 1024 /* maximum depth of recorded nested calls */
#define LEAST 1000000ull /* nanoseconds: shorter waits are not written; see python_recorder.LEAST */
#define LIBRARIES 8 /* all library numbers are smaller */
#define ENTERED (LIBRARIES * LIBRARIES - 1) /* count of an operation's entries, among its other counts */
enum { CALL_ENTER, CALL_EXIT, OPERATION_ENTER, OPERATION_EXIT, PHASE_ENTER, PHASE_EXIT, PASSED = 13, BLOCKED };
enum { CALLS, OPERATIONS };

typedef struct { uint64_t ts; uint32_t top; uint16_t kind, depth; } Edge;

typedef struct {
    PyObject_HEAD
    Edge *at, *end;
    Py_buffer view;     /* memory of the segment */
    PyObject *next;     /* returns the next segment */
    uint64_t before;    /* events in earlier segments */
    uint64_t last;      /* time of the last event in earlier segments */
    uint64_t due;       /* time of the next read of the thread's CPU clock */
    uint64_t wall, cpu; /* wall and CPU time of the last read */
    uint64_t ready;     /* nanoseconds in the run queue at the last read */
    uint64_t off;       /* nanoseconds without a processor since then */
    long long switches; /* voluntary context switches at the last read */
    uint32_t calls[DEPTH];
    int depth;
    uint32_t passed[2]; /* unwritten calls and operations since the last event */
    char silent;        /* whether calls and operations are only counted */
    char met[ENTERED + 1]; /* indices of the innermost operation's nonzero counts */
    int kinds;          /* number of these indices */
    uint32_t counts[ENTERED + 1]; /* counts in a disabled block, by left and entered library */
    PyObject *missed;   /* the same for the other operations, by name: bytearrays */
    PyObject *operations, *phases; /* lists of the open ones */
    PyObject *tallies;  /* outermost operations of the block by name; None without blocks */
    PyObject *turn;     /* ends the block */
    Py_ssize_t left;    /* operations until the end of the block */
} Lane;

typedef struct {
    PyObject_HEAD
    PyObject *name;
    uint64_t epoch;     /* recording of `top` */
    uint32_t top;
    char is_phase;
} Named;

typedef struct {
    PyObject_HEAD
    PyObject *function, *taps, *name, *weak, *guess; /* `guess`: operation to open around a call if none is open */
    vectorcallfunc vectorcall;
    uint64_t epoch;     /* recording of `top` */
    uint32_t library, top;
} Tap;

static _Thread_local struct { Lane *lane; uint64_t epoch; } here;
static uint64_t epoch = 1;
static int recording = 0;
static PyObject *this_lane, *number, *numbers, *astray, *stepped; /* Python functions of the current recording */

/* --- timelines ------------------------------------------------------------------------------ */

static uint64_t edges_of(Lane *lane) {
    return lane->before + (lane->at ? (uint64_t)(lane->at - (Edge *)lane->view.buf) : 0);
}

static uint64_t last_of(Lane *lane) {
    return lane->at && lane->at != (Edge *)lane->view.buf ? lane->at[-1].ts : lane->last;
}

static int next_segment(Lane *lane) {
    PyObject *segment = PyObject_CallNoArgs(lane->next);
    if (!segment) return -1;
    lane->last = last_of(lane);
    lane->before = edges_of(lane);
    PyBuffer_Release(&lane->view);
    lane->at = lane->end = NULL;
    int bad = PyObject_GetBuffer(segment, &lane->view, PyBUF_WRITABLE);
    Py_DECREF(segment);
    if (bad) return -1;
    lane->at = lane->view.buf;
    lane->end = lane->at + lane->view.len / sizeof(Edge);
    return 0;
}

static inline int put_at(Lane *lane, uint32_t top, uint16_t kind, int depth, uint64_t ts) {
    if (__builtin_expect(lane->at == lane->end, 0) && next_segment(lane) < 0) return -1;
    Edge *edge = lane->at++;
    edge->top = top;
    edge->kind = kind;
    edge->depth = (uint16_t)(depth < 0xFFFF ? depth : 0xFFFF);
    __atomic_store_n(&edge->ts, ts, __ATOMIC_RELEASE); /* stored last: a nonzero time marks a complete event */
    return 0;
}

static uint64_t clock_ns(clockid_t which) {
    struct timespec now;
    clock_gettime(which, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* Return nanoseconds of this thread in the run queue; 0 if unknown. */
static uint64_t ready_ns(void) {
    char text[96];
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    if (n <= 0) return 0;
    text[n] = 0;
    char *rest;
    strtoull(text, &rest, 10);
    return strtoull(rest, NULL, 10);
}

/* Return the number of this thread's voluntary context switches; -1 if unknown. */
static long long switches_now(void) {
#ifdef RUSAGE_THREAD
    struct rusage used;
    if (!getrusage(RUSAGE_THREAD, &used)) return used.ru_nvcsw;
#endif
    return -1;
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* Return nanoseconds of blocking since the last event: see python_recorder.Lane.blocked. */
static uint64_t blocked_until(Lane *lane, uint64_t ts, uint64_t cpu, uint64_t ready, long long switches) {
    if (switches >= 0 && switches == lane->switches) return 0; /* interrupts or other virtual machines took the time */
    uint64_t window = less(ts, lane->wall), ran = less(cpu, lane->cpu), since = less(ts, last_of(lane));
    uint64_t waited = less(less(ready, lane->ready), lane->off);
    uint64_t blocked = less(since, less(ran, less(window, since)) + waited);
    return blocked >= LEAST ? blocked : 0;
}

static inline uint32_t library_on(Lane *lane) {
    return lane->depth ? lane->calls[lane->depth - 1] >> NAME_BITS : 0;
}

/* Read the thread's CPU clock before an event, and write for how long it was blocked in Python code. */
static int sample(Lane *lane, uint16_t kind, uint64_t ts) {
    uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), blocked = 0;
    if (!lane->wall) {
        lane->ready = ready_ns();
        lane->switches = switches_now();
    } else {
        uint64_t off = less(less(ts, lane->wall), less(cpu, lane->cpu));
        if (lane->off + off >= LEAST) {
            uint64_t ready = ready_ns();
            long long switches = switches_now();
            blocked = blocked_until(lane, ts, cpu, ready, switches);
            lane->ready = ready;
            lane->switches = switches;
            lane->off = 0;
        } else lane->off += off;
    }
    lane->wall = ts;
    lane->cpu = cpu;
    lane->due = ts + LEAST;
    uint32_t on = kind == CALL_EXIT ? lane->calls[lane->depth] >> NAME_BITS : library_on(lane); /* before the event */
    if (!blocked || on || lane->silent) return 0;
    return put_at(lane, (uint32_t)blocked, BLOCKED, (int)(blocked >> 32), ts);
}

static inline int put(Lane *lane, uint32_t top, uint16_t kind, int depth, uint64_t ts) {
    if (__builtin_expect(lane->at == lane->end, 0) && next_segment(lane) < 0) return -1;
    if (!ts) ts = clock_ns(CLOCK_MONOTONIC);
    if (__builtin_expect(ts >= lane->due, 0) && sample(lane, kind, ts) < 0) return -1;
    for (int which = CALLS; which <= OPERATIONS; which++)
        if (lane->passed[which]) {
            if (put_at(lane, lane->passed[which], PASSED, which, ts) < 0) return -1;
            lane->passed[which] = 0;
        }
    return put_at(lane, top, kind, depth, ts);
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

/* --- counts of unwritten calls and operations --- */

static inline void count(Lane *lane, uint32_t which) {
    if (!lane->counts[which]++) lane->met[lane->kinds++] = (char)which;
}

/* Add the counts of the innermost operation to the sums of its name. */
static int flush(Lane *lane) {
    if (!lane->kinds) return 0;
    Py_ssize_t n = PyList_GET_SIZE(lane->operations);
    PyObject *none = n ? NULL : PyUnicode_FromString("");
    PyObject *name = n ? ((Named *)PyList_GET_ITEM(lane->operations, n - 1))->name : none;
    if (!name) return -1;
    if (!lane->missed && !(lane->missed = PyDict_New())) return -1;
    PyObject *held = PyDict_GetItemWithError(lane->missed, name);
    if (!held) {
        uint32_t zeros[ENTERED + 1] = {0};
        held = PyErr_Occurred() ? NULL : PyByteArray_FromStringAndSize((char *)zeros, sizeof zeros);
        if (held && PyDict_SetItem(lane->missed, name, held) < 0) Py_CLEAR(held);
        Py_XDECREF(held); /* the dictionary has a reference */
    }
    Py_XDECREF(none);
    if (!held) return -1;
    uint32_t *sums = (uint32_t *)PyByteArray_AS_STRING(held);
    while (lane->kinds) {
        int which = lane->met[--lane->kinds];
        sums[which] += lane->counts[which];
        lane->counts[which] = 0;
    }
    return 0;
}

/* Return and clear the counts: (operation, which, count), see python_recorder.Lane.missed. */
static PyObject *lane_missed(Lane *lane, PyObject *_) {
    PyObject *found = PyList_New(0), *name, *held;
    if (!found || flush(lane) < 0) return Py_XDECREF(found), NULL;
    Py_ssize_t at = 0;
    while (lane->missed && PyDict_Next(lane->missed, &at, &name, &held)) {
        uint32_t *sums = (uint32_t *)PyByteArray_AS_STRING(held);
        for (int which = 0; which <= ENTERED; which++) {
            if (!sums[which]) continue;
            PyObject *row = Py_BuildValue("(OiI)", name, which, sums[which]);
            if (!row || PyList_Append(found, row) < 0) return Py_XDECREF(row), Py_DECREF(found), NULL;
            Py_DECREF(row);
        }
    }
    Py_CLEAR(lane->missed);
    return found;
}

/* Count the start or end of a call without writing it. */
static inline void enter_silently(Lane *lane, uint32_t top) {
    count(lane, library_on(lane) % LIBRARIES * LIBRARIES + (top >> NAME_BITS) % LIBRARIES);
    lane->calls[lane->depth++] = top;
}

static PyObject *lane_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    PyObject *next;
    if (!PyArg_ParseTuple(args, "O", &next)) return NULL;
    Lane *lane = (Lane *)type->tp_alloc(type, 0);
    if (!lane) return NULL;
    lane->next = Py_NewRef(next);
    lane->operations = PyList_New(0);
    lane->phases = PyList_New(0);
    if (!lane->operations || !lane->phases) Py_CLEAR(lane);
    return (PyObject *)lane;
}
static int lane_traverse(Lane *lane, visitproc visit, void *arg) {
    Py_VISIT(lane->next); Py_VISIT(lane->operations); Py_VISIT(lane->phases);
    Py_VISIT(lane->tallies); Py_VISIT(lane->turn); Py_VISIT(lane->missed);
    return 0;
}
static int lane_clear(Lane *lane) {
    Py_CLEAR(lane->next); Py_CLEAR(lane->operations); Py_CLEAR(lane->phases);
    Py_CLEAR(lane->tallies); Py_CLEAR(lane->turn); Py_CLEAR(lane->missed);
    return 0;
}
static void lane_dealloc(Lane *lane) {
    PyObject_GC_UnTrack(lane);
    if (here.lane == lane) here.lane = NULL;
    PyBuffer_Release(&lane->view);
    lane_clear(lane);
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
    if (lane->silent) return enter_silently(lane, top), done(0);
    return done(enter(lane, top, ts));
}
static PyObject *lane_returned(Lane *lane, PyObject *_) {
    if (!lane->silent) return done(leave(lane));
    if (lane->depth) lane->depth--;
    Py_RETURN_NONE;
}
static PyObject *lane_blocked(Lane *lane, PyObject *args) {
    unsigned long long ts, cpu, ready; long long switches;
    if (!PyArg_ParseTuple(args, "KKKL", &ts, &cpu, &ready, &switches)) return NULL;
    int told = lane->wall && !lane->silent && !library_on(lane);
    return PyLong_FromUnsignedLongLong(told ? blocked_until(lane, ts, cpu, ready, switches) : 0);
}
static PyObject *lane_close(Lane *lane, PyObject *_) {
    lane->last = last_of(lane);
    lane->before = edges_of(lane);
    PyBuffer_Release(&lane->view);
    lane->at = lane->end = NULL;
    if (here.lane == lane) here.lane = NULL;
    Py_RETURN_NONE;
}
static PyObject *lane_edges(Lane *lane, void *_) { return PyLong_FromUnsignedLongLong(edges_of(lane)); }
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
    {"blocked", (PyCFunction)lane_blocked, METH_VARARGS, "Nanoseconds for which the thread is blocked since its last edge."},
    {"missed", (PyCFunction)lane_missed, METH_NOARGS, "Take the counts of what was not written."},
    {"close", (PyCFunction)lane_close, METH_NOARGS, "Unmap the segment; this thread writes here no more."},
    {"install", (PyCFunction)lane_install, METH_NOARGS, "This is the lane of the thread that asks."},
    {0}};
static PyGetSetDef lane_getset[] = {
    {"library", (getter)lane_library, NULL, "The one on top."},
    {"edges", (getter)lane_edges, NULL, "How many were written."}, {0}};
static PyMemberDef lane_members[] = {
    {"silent", T_BOOL, offsetof(Lane, silent), 0, "Whether calls and operations are not written."},
    {"operations", T_OBJECT, offsetof(Lane, operations), READONLY, "Those that are open."},
    {"phases", T_OBJECT, offsetof(Lane, phases), READONLY, "Those that are open."},
    {"tallies", T_OBJECT, offsetof(Lane, tallies), 0, "Of the block, by name."},
    {"turn", T_OBJECT, offsetof(Lane, turn), 0, "Ends the block."},
    {"left", T_PYSSIZET, offsetof(Lane, left), 0, "Operations, until the block ends."}, {0}};
static PyTypeObject LaneType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "timerl_nb.scope.wrappers._tap.Lane",
    .tp_basicsize = sizeof(Lane), .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = lane_new, .tp_dealloc = (destructor)lane_dealloc, .tp_traverse = (traverseproc)lane_traverse,
    .tp_clear = (inquiry)lane_clear, .tp_methods = lane_methods, .tp_getset = lane_getset,
    .tp_members = lane_members,
};

/* A call into Python has failed: stop recording; the program continues. */
static void fail(void) {
    recording = 0;
    PyErr_WriteUnraisable(NULL);
}

/* Return the timeline of the current thread; NULL without a recording. */
static Lane *lane_here(void) {
    if (!recording) return NULL;
    if (__builtin_expect(here.epoch == epoch && here.lane, 1)) return here.lane;
    PyObject *made = PyObject_CallNoArgs(this_lane); /* installs it */
    if (!made) return fail(), NULL;
    Py_DECREF(made);
    return recording && here.epoch == epoch ? here.lane : NULL;
}

/* --- annotations ---------------------------------------------------------------------------- */

static PyTypeObject NamedType, OperationType, PhaseType;

static PyObject *named_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    static char *words[] = {"name", NULL};
    PyObject *name;
    if (!named && PyTuple_GET_SIZE(args) == 1) name = PyTuple_GET_ITEM(args, 0); /* fast path without the argument parser */
    else if (!PyArg_ParseTupleAndKeywords(args, named, "O", words, &name)) return NULL;
    if (!PyUnicode_Check(name)) {
        PyObject *pure = PyImport_ImportModule("timerl_nb.scope.wrappers.python_recorder");
        if (pure) Py_XDECREF(PyObject_CallMethod(pure, "no_name", "O", name)); /* raises an error */
        Py_XDECREF(pure);
        return NULL;
    }
    Named *self = (Named *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->name = Py_NewRef(name);
    self->is_phase = (char)PyType_IsSubtype(type, &PhaseType);
    return (PyObject *)self;
}
static void named_dealloc(Named *self) {
    Py_CLEAR(self->name);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Return the `top` field of an annotation; -1 if the recording has ended. */
static inline int find_top(Named *self) {
    if (self->epoch == epoch) return 0;
    PyObject *known = PyDict_GetItemWithError(numbers, self->name);
    PyObject *found = known ? Py_NewRef(known) : PyObject_CallFunction(number, "IO", 0, self->name);
    if (!found) return fail(), -1;
    if (!recording) return Py_DECREF(found), -1;
    self->top = (uint32_t)PyLong_AsUnsignedLong(found);
    self->epoch = epoch;
    Py_DECREF(found);
    return 0;
}

static void enter_named(Named *self) {
    Lane *lane = lane_here();
    if (!lane) return;
    PyObject *open = self->is_phase ? lane->phases : lane->operations;
    int written = self->is_phase || !lane->silent;
    if (written && find_top(self) < 0) return;
    if (!written && flush(lane) < 0) return fail(); /* counts of the enclosing operation */
    if (PyList_Append(open, (PyObject *)self) < 0) return fail();
    if (!written) count(lane, ENTERED);
    uint16_t kind = self->is_phase ? PHASE_ENTER : OPERATION_ENTER;
    if (written && put(lane, self->top, kind, (int)PyList_GET_SIZE(open), 0) < 0) fail();
}

/* Count an outermost operation of the block, and end the block if it is complete. */
static int tally(Lane *lane, PyObject *name) {
    PyObject *so_far = PyDict_GetItemWithError(lane->tallies, name);
    PyObject *count = PyLong_FromLong(so_far ? PyLong_AsLong(so_far) + 1 : 1);
    int bad = !count || PyDict_SetItem(lane->tallies, name, count) < 0;
    Py_XDECREF(count);
    if (bad) return -1;
    if (--lane->left > 0 || library_on(lane)) return 0;
    PyObject *made = PyObject_CallNoArgs(lane->turn);
    Py_XDECREF(made);
    return made ? 0 : -1;
}

static int leave_named(Named *self) {
    Lane *lane = lane_here();
    if (!lane) return 0;
    PyObject *open = self->is_phase ? lane->phases : lane->operations;
    Py_ssize_t n = PyList_GET_SIZE(open);
    if (!n || PyList_GET_ITEM(open, n - 1) != (PyObject *)self) {
        PyObject *made = PyObject_CallOneArg(astray, (PyObject *)self);
        Py_XDECREF(made);
        return made ? 0 : -1;
    }
    Py_INCREF(lane); /* the thread may begin another recording */
    int bad = 0, written = self->is_phase || !lane->silent;
    Named *below;
    do { /* also pop the entries below with an earlier exit out of order */
        if (!written && flush(lane) < 0) { bad = -1; goto end; }
        if (PyList_SetSlice(open, n - 1, n, NULL) < 0) { bad = -1; goto end; }
        below = --n ? (Named *)PyList_GET_ITEM(open, n - 1) : NULL;
        if (!written) {
            lane->passed[OPERATIONS]++;
            continue;
        }
        if (below && find_top(below) < 0) goto end;
        if (put(lane, below ? below->top : 0, self->is_phase ? PHASE_EXIT : OPERATION_EXIT, (int)n, 0) < 0) {
            fail();
            goto end;
        }
    } while (below && Py_TYPE(below) == &NamedType);
    if (n) goto end;
    if (!self->is_phase && lane->tallies && PyDict_Check(lane->tallies)) bad = tally(lane, self->name);
    if (!bad && recording && stepped) {
        PyObject *made = PyObject_CallOneArg(stepped, self->is_phase ? Py_True : Py_False);
        Py_XDECREF(made);
        bad = made ? 0 : -1;
    }
end:
    Py_DECREF(lane);
    return bad;
}

static PyObject *named_enter(PyObject *self, PyObject *_) { enter_named((Named *)self); return Py_NewRef(self); }
static PyObject *named_exit(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    return done(leave_named((Named *)self));
}
static PyMethodDef named_methods[] = {
    {"__enter__", named_enter, METH_NOARGS}, {"__exit__", (PyCFunction)(void (*)(void))named_exit, METH_FASTCALL}, {0}};
static PyMemberDef named_members[] = {
    {"name", T_OBJECT, offsetof(Named, name), READONLY, "What it is called."},
    {"is_phase", T_BOOL, offsetof(Named, is_phase), READONLY, "Or an operation."}, {0}};
static PyTypeObject NamedType = { /* without methods: marks an entry with an exit out of order */
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "timerl_nb.scope.wrappers._tap.Named",
    .tp_basicsize = sizeof(Named), .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = named_new, .tp_dealloc = (destructor)named_dealloc, .tp_members = named_members,
    .tp_doc = "Named(name)\n--\n\nWhat is open, or was left.",
};

/* --- function wrappers ---------------------------------------------------------------------- */

static PyObject *recorded(Tap *self, Lane *lane, PyObject *const *args, size_t n, PyObject *named) {
    uint64_t begun = epoch;
    if (lane->silent || lane->depth == DEPTH || library_on(lane) == self->library) {
        lane->passed[CALLS]++;
        if (lane->depth == DEPTH || library_on(lane) == self->library)
            return PyObject_Vectorcall(self->function, args, n, named);
        enter_silently(lane, self->top);
        PyObject *found = PyObject_Vectorcall(self->function, args, n, named);
        if (recording && begun == epoch && here.lane == lane && lane->depth) lane->depth--;
        return found;
    }
    if (enter(lane, self->top, 0) < 0) {
        fail();
        return PyObject_Vectorcall(self->function, args, n, named);
    }
    PyObject *made = PyObject_Vectorcall(self->function, args, n, named);
    /* the function may have ended the recording, or forked */
    if (recording && begun == epoch && here.lane == lane) {
        PyObject *type, *value, *trace; /* keep the function's exception */
        if (!made) PyErr_Fetch(&type, &value, &trace);
        if (leave(lane) < 0) fail();
        if (!made) PyErr_Restore(type, value, trace);
    }
    return made;
}

/* Call a function inside of its default operation. */
static PyObject *in_operation(Tap *self, Lane *lane, PyObject *const *args, size_t n, PyObject *named) {
    int known = PyObject_TypeCheck(self->guess, &NamedType);
    PyObject *guess = known ? Py_NewRef(self->guess) : PyObject_CallNoArgs(self->guess);
    if (!guess) return NULL;
    Py_INCREF(lane);
    enter_named((Named *)guess);
    PyObject *made = recorded(self, lane, args, n, named);
    PyObject *type = NULL, *value, *trace;
    if (!made) PyErr_Fetch(&type, &value, &trace);
    int bad = leave_named((Named *)guess);
    Py_DECREF(lane);
    Py_DECREF(guess);
    if (!bad && type) PyErr_Restore(type, value, trace);
    else if (type) { Py_DECREF(type); Py_XDECREF(value); Py_XDECREF(trace); }
    if (bad) Py_CLEAR(made);
    return made;
}

static PyObject *tap_call(PyObject *o, PyObject *const *args, size_t n, PyObject *named) {
    Tap *self = (Tap *)o;
    Lane *lane = lane_here();
    if (lane && self->epoch != epoch) {
        PyObject *found = PyObject_CallFunction(number, "IO", self->library, self->name);
        if (found) {
            self->top = (uint32_t)PyLong_AsUnsignedLong(found);
            self->epoch = epoch;
            Py_DECREF(found);
        } else fail();
        if (!recording) lane = NULL;
    }
    if (!lane) return PyObject_Vectorcall(self->function, args, n, named);
    if (self->guess && !PyList_GET_SIZE(lane->operations)) return in_operation(self, lane, args, n, named);
    return recorded(self, lane, args, n, named);
}

static PyTypeObject TapType, MethodTapType; /* the latter binds to instances */
static int is_tap(PyObject *o) { return Py_TYPE(o) == &TapType || Py_TYPE(o) == &MethodTapType; }
static PyObject *tap_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    PyObject *taps, *function, *name, *guess = Py_None; unsigned int library;
    if (!PyArg_ParseTuple(args, "OOUI|O", &taps, &function, &name, &library, &guess)) return NULL;
    Tap *self = (Tap *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->taps = Py_NewRef(taps);
    self->function = Py_NewRef(function);
    self->name = Py_NewRef(name);
    self->guess = guess == Py_None ? NULL : Py_NewRef(guess);
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
    if (!instance || instance == Py_None) return Py_NewRef(self);
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
    PyObject *function = ((Tap *)o)->function;
    if (PyFunction_Check(function)) /* its own __reduce_ex__ does not return the name */
        return PyObject_GetAttrString(function, "__qualname__");
    return PyObject_CallMethod(function, "__reduce_ex__", "O", protocol);
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
    {"_taps", T_OBJECT, offsetof(Tap, taps), READONLY}, {0}};
static PyTypeObject TapType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "timerl_nb.scope.wrappers._tap.Tap",
    .tp_basicsize = sizeof(Tap),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = tap_new, .tp_dealloc = (destructor)tap_dealloc, .tp_traverse = (traverseproc)tap_traverse,
    .tp_clear = (inquiry)tap_clear, .tp_call = PyVectorcall_Call, .tp_vectorcall_offset = offsetof(Tap, vectorcall),
    .tp_getattro = tap_getattro, .tp_repr = tap_repr, .tp_hash = tap_hash, .tp_richcompare = tap_compare,
    .tp_weaklistoffset = offsetof(Tap, weak), .tp_methods = tap_methods, .tp_getset = tap_getset,
    .tp_members = tap_members,
};

/* --- the module ----------------------------------------------------------------------------- */

static PyObject *start(PyObject *module, PyObject *args) {
    PyObject *lane, *top, *known, *left;
    if (!PyArg_ParseTuple(args, "OOO!O", &lane, &top, &PyDict_Type, &known, &left)) return NULL;
    Py_XSETREF(this_lane, Py_NewRef(lane));
    Py_XSETREF(number, Py_NewRef(top));
    Py_XSETREF(numbers, Py_NewRef(known));
    Py_XSETREF(astray, Py_NewRef(left));
    Py_CLEAR(stepped);
    epoch++;
    recording = 1;
    Py_RETURN_NONE;
}
static PyObject *stop(PyObject *module, PyObject *_) {
    recording = 0;
    epoch++;
    Py_CLEAR(this_lane); Py_CLEAR(number); Py_CLEAR(numbers); Py_CLEAR(astray); Py_CLEAR(stepped);
    Py_RETURN_NONE;
}
static PyObject *each_step(PyObject *module, PyObject *told) {
    Py_XSETREF(stepped, Py_NewRef(told));
    Py_RETURN_NONE;
}
static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, "What follows is recorded: see pure.py."},
    {"stop", stop, METH_NOARGS, "Nothing is recorded any more."},
    {"each_step", each_step, METH_O, "Have a function be told where a thread's outermost operation or phase ends."},
    {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_tap", "Lanes, annotations and taps in C.", -1, methods};

PyMODINIT_FUNC PyInit__tap(void) {
    MethodTapType = TapType;
    MethodTapType.tp_name = "timerl_nb.scope.wrappers._tap.MethodTap";
    MethodTapType.tp_descr_get = tap_get;
    MethodTapType.tp_flags |= Py_TPFLAGS_METHOD_DESCRIPTOR; /* called with its instance, without a bound method */
    OperationType = PhaseType = NamedType;
    OperationType.tp_name = "timerl_nb.scope.wrappers._tap.Operation";
    PhaseType.tp_name = "timerl_nb.scope.wrappers._tap.Phase";
    OperationType.tp_base = PhaseType.tp_base = &NamedType;
    OperationType.tp_methods = PhaseType.tp_methods = named_methods;
    PyTypeObject *types[] = {&LaneType, &NamedType, &OperationType, &PhaseType, &TapType, &MethodTapType};
    PyObject *made = PyModule_Create(&module);
    for (size_t k = 0; made && k < sizeof types / sizeof *types; k++)
        if (PyModule_AddType(made, types[k]) < 0) Py_CLEAR(made);
    if (made && PyModule_AddIntConstant(made, "SOURCE", SOURCE) < 0) Py_CLEAR(made);
    return made;
}
