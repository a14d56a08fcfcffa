/* A stand-in for libnvidia-ml.so.1 that answers from a text file, so that every state of a driver can be tested.
 *
 * FAKE_NVML names the scenario: one item a line, `word key=value ...`, values in quotes where they hold blanks, sizes
 * in MiB, `#` starts a comment.
 *   driver version=550.54.15 init=18          init: the code nvmlInit fails with
 *   gpu name="..." uuid=GPU-.. total= used= reserved= cc=8.6 cores= clock= err=15 (handle), mem_err=, proc_err=, mig=1
 *   mig name="..." uuid=MIG-.. total= used= gi= ci=      an instance of the last gpu
 *   proc pid=self|parent|N mem=N|na type=C|G|CG name="..." name_err=6      of the last gpu or mig
 * Built with -DOLD_DRIVER (a line `# build OLD_DRIVER` in the scenario) it lacks the newest functions.
 * Struct layouts and symbol versions as in nvidia-ml-py 13.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT = 7 };
enum { MAX_DEVICES = 32, MAX_PROCS = 64 };

typedef struct { u64 total, free, used; } memory_t;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2_t;
typedef struct { u32 pid; u64 used; u32 gi, ci; } process_t;
typedef struct { u32 pid; u64 mem; char type[4], name[128]; int name_err; } proc;
typedef struct {
  char name[96], uuid[96];
  u64 total, used, reserved;
  int major, minor, cores, clock, err, mem_err, proc_err, mig, parent, procs;
  u32 gi, ci;
  proc proc[MAX_PROCS];
} device;

static device devices[MAX_DEVICES];
static int count, init_code, ready;
static char driver[80] = "550.54.15";

static const char *value(const char *line, const char *key, char *out, size_t size) {
  char mark[32];
  snprintf(mark, sizeof mark, " %s=", key);
  const char *at = strstr(line, mark);
  if (!at) return NULL;
  at += strlen(mark);
  char end = *at == '"' ? *at++ : ' ';
  size_t n = 0;
  while (*at && *at != end && *at != '\n' && n + 1 < size) out[n++] = *at++;
  out[n] = 0;
  return out;
}

static long number(const char *line, const char *key, long otherwise) {
  char text[32];
  return value(line, key, text, sizeof text) ? atol(text) : otherwise;
}

static void read_device(const char *line, int parent) {
  device *d = &devices[count++];
  char cc[16] = "8.6";
  value(line, "name", d->name, sizeof d->name);
  value(line, "uuid", d->uuid, sizeof d->uuid);
  value(line, "cc", cc, sizeof cc);
  sscanf(cc, "%d.%d", &d->major, &d->minor);
  d->total = (u64)number(line, "total", 0) << 20, d->used = (u64)number(line, "used", 0) << 20;
  d->reserved = (u64)number(line, "reserved", 0) << 20;
  d->cores = number(line, "cores", 1000), d->clock = number(line, "clock", 1000);
  d->err = number(line, "err", 0), d->mem_err = number(line, "mem_err", 0), d->proc_err = number(line, "proc_err", 0);
  d->mig = number(line, "mig", 0), d->gi = number(line, "gi", -1), d->ci = number(line, "ci", -1);
  d->parent = parent;
}

static void read_proc(const char *line) {
  device *d = &devices[count - 1];
  proc *p = &d->proc[d->procs++];
  char pid[16] = "0", mem[16] = "0";
  value(line, "pid", pid, sizeof pid);
  value(line, "mem", mem, sizeof mem);
  p->pid = !strcmp(pid, "self") ? (u32)getpid() : !strcmp(pid, "parent") ? (u32)getppid() : (u32)strtoul(pid, NULL, 10);
  p->mem = !strcmp(mem, "na") ? ~0ULL : (u64)atol(mem) << 20;
  strcpy(p->type, "C");
  value(line, "type", p->type, sizeof p->type);
  value(line, "name", p->name, sizeof p->name);
  p->name_err = number(line, "name_err", 0);
}

static int load(void) {
  const char *path = getenv("FAKE_NVML");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[512];
  int gpu = -1;
  if (!file) return 9;
  count = 0, init_code = 0;
  memset(devices, 0, sizeof devices);
  while (fgets(line, sizeof line, file) && count < MAX_DEVICES) {
    if (!strncmp(line, "driver ", 7)) {
      value(line, "version", driver, sizeof driver);
      init_code = number(line, "init", 0);
    } else if (!strncmp(line, "gpu ", 4)) {
      gpu = count;
      read_device(line, -1);
    } else if (!strncmp(line, "mig ", 4) && gpu >= 0) {
      read_device(line, gpu);
    } else if (!strncmp(line, "proc ", 5) && count) {
      read_proc(line);
    }
  }
  fclose(file);
  ready = !init_code;
  return init_code;
}

static int nth(int parent, u32 index, device **out) {
  if (!ready) return UNINITIALIZED;
  for (int i = 0; i < count; i++)
    if (devices[i].parent == parent && index-- == 0) {
      *out = &devices[i];
      return devices[i].err;
    }
  return parent < 0 ? INVALID : NOT_FOUND;
}

static int text(const char *from, char *out, u32 size) {
  snprintf(out, size, "%s", from);
  return OK;
}

int nvmlInitWithFlags(u32 flags) { (void)flags; return load(); }
int nvmlInit_v2(void) { return load(); }
int nvmlInit(void) { return load(); }
int nvmlShutdown(void) { ready = 0; return OK; }
const char *nvmlErrorString(int code) { (void)code; return "fake error"; }
int nvmlSystemGetDriverVersion(char *out, u32 size) { return text(driver, out, size); }
int nvmlDeviceGetName(device *d, char *out, u32 size) { return text(d->name, out, size); }
int nvmlDeviceGetUUID(device *d, char *out, u32 size) { return text(d->uuid, out, size); }
int nvmlDeviceGetHandleByIndex_v2(u32 index, device **out) { return nth(-1, index, out); }
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, u32 index, device **out) { return nth(d - devices, index, out); }

int nvmlDeviceGetCount_v2(u32 *out) {
  *out = 0;
  for (int i = 0; i < count; i++) *out += devices[i].parent < 0;
  return ready ? OK : UNINITIALIZED;
}

int nvmlDeviceGetMemoryInfo(device *d, memory_t *out) {
  *out = (memory_t){d->total, d->total - d->used - d->reserved, d->used + d->reserved};
  return d->mem_err;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(device *d, memory_v2_t *out) {
  if (out->version != 0x02000028) return 25;
  *out = (memory_v2_t){out->version, d->total, d->reserved, d->total - d->used - d->reserved, d->used};
  return d->mem_err;
}
#endif

int nvmlDeviceGetCudaComputeCapability(device *d, int *major, int *minor) {
  *major = d->major, *minor = d->minor;
  return OK;
}

int nvmlDeviceGetNumGpuCores(device *d, u32 *out) { *out = d->cores; return OK; }
int nvmlDeviceGetMaxClockInfo(device *d, u32 type, u32 *out) { (void)type; *out = d->clock; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(device *d, u32 *out) { *out = d->mig ? 7 : 0; return OK; }

int nvmlDeviceGetMigMode(device *d, u32 *current, u32 *pending) {
  *current = *pending = d->mig;
  return d->mig ? OK : NOT_SUPPORTED;
}

static int list(device *d, char type, u32 *size, process_t *out) {
  u32 found = 0, room = *size;
  if (d->proc_err) return d->proc_err;
  for (int i = 0; i < d->procs; i++) {
    proc *p = &d->proc[i];
    if (!strchr(p->type, type)) continue;
    if (found < room) out[found] = (process_t){p->pid, p->mem, d->gi, d->ci};
    found++;
  }
  *size = found;
  return found > room ? INSUFFICIENT : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v2(device *d, u32 *size, process_t *out) { return list(d, 'C', size, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(device *d, u32 *size, process_t *out) { return list(d, 'G', size, out); }
#ifndef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, u32 *size, process_t *out) { return list(d, 'C', size, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(device *d, u32 *size, process_t *out) { return list(d, 'G', size, out); }
#endif

int nvmlSystemGetProcessName(u32 pid, char *out, u32 size) {
  for (int i = 0; i < count; i++)
    for (int j = 0; j < devices[i].procs; j++)
      if (devices[i].proc[j].pid == pid)
        return devices[i].proc[j].name_err ? devices[i].proc[j].name_err : text(devices[i].proc[j].name, out, size);
  return NOT_FOUND;
}
