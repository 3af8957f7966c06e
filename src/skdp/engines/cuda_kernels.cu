// Update margins, compute slopes and add up gradients on a GPU.
//
// Sums of integers are exact in any order: features, slopes and weights are integers, and
// each partial sum stays below 2^53 in a double or fits its integer type. Slopes are
// rounded, so they use the correctly rounded operations __dadd_rn, __dmul_rn, __ddiv_rn
// and __dsqrt_rn in the order of skdp.models.formulas. A compiler never contracts these,
// so every slope equals that of the reference engine bit for bit.
//
// The host compiles this file for one shape of sweep. It defines
//   FORMULA   the formula of slopes: MEAN, RESIDUAL, BENT_RESIDUAL, RAMP or SOFTMAX
//   NUMBERS, BYTES, SHORTS   how many columns of numbers, of one-byte codes and of
//             two-byte codes a sweep reads
//   KEPT      1 if margins are kept between sweeps, and 0 if they are computed anew
//   THREADS, RESIDENT   the threads of a block, and how many blocks a processor runs
//   COPIES    how many copies of the sums over codes a block has in shared memory

#define MEAN 0
#define RESIDUAL 1
#define BENT_RESIDUAL 2
#define RAMP 3
#define SOFTMAX 4

typedef long long int64;
typedef unsigned long long uint64;

extern __shared__ double shared[];

// The slope of a loss and the grid that slopes are rounded to. The fields are those of
// skdp.engines.kernels. `last` is the last place in the table.
struct Formula {
    double unit, low, steps, bound, one, scale, cap, last;
};

__device__ inline double least(double a, double b) { return a < b ? a : b; }
__device__ inline double most(double a, double b) { return a > b ? a : b; }
__device__ inline double clip(double value, double low, double high) {
    return least(most(value, low), high);
}

// Read the table at `value` by linear interpolation.
__device__ inline double interpolate(const double* table, double value, const Formula& f) {
    double inside = value > f.low ? value : f.low;
    double place = least(__dmul_rn(__dsub_rn(inside, f.low), f.steps), f.last);
    int index = (int)place, end = (int)f.last - 1;
    index = index < end ? index : end;
    double below = table[index], above = table[index + 1];
    double part = __dsub_rn(place, (double)index);
    return __dadd_rn(below, __dmul_rn(part, __dsub_rn(above, below)));
}

// The slope of a loss with one output, from a margin in units.
__device__ inline double slope_of(
    double margin, double target, const double* table, const Formula& f) {
    double m = __dmul_rn(margin, f.unit), y = __dmul_rn(target, f.one);
    if (FORMULA == MEAN)
        return clip(__dsub_rn(interpolate(table, m, f), y), -f.bound, f.bound);
    double sign = __dsub_rn(__dmul_rn(2.0, y), 1.0);
    if (FORMULA == RAMP) {
        double left = __dsub_rn(1.0, __dmul_rn(sign, m));
        return __dmul_rn(-sign, clip(__ddiv_rn(left, f.bound), 0.0, 1.0));
    }
    double residual = __dsub_rn(m, sign);
    if (FORMULA == BENT_RESIDUAL) residual = interpolate(table, residual, f);
    return clip(residual, -f.bound, f.bound);
}

// Weight times slope, rounded to the grid and clipped to `cap`.
__device__ inline double round_slope(
    double slope, float weight, double cap, const Formula& f) {
    double raw = __dmul_rn(slope, (double)weight);
    raw = raw == raw ? raw : 0.0;
    double units = floor(__dadd_rn(__dmul_rn(raw, f.scale), 0.5));
    return clip(clip(units, -f.cap, f.cap), -cap, cap);
}

// Compute slopes[i, :] from margins[i, :], for any number of outputs.
extern "C" __global__ void slopes(
    const double* margins, double* slopes, int64 n, int outputs,
    const unsigned short* target, const float* weight, const int* caps,
    const double* table, Formula f) {
    int64 stride = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const double* m = margins + i * outputs;
        double* s = slopes + i * outputs;
        double cap = caps ? (double)caps[i] : f.cap;
        if (FORMULA != SOFTMAX) {
            for (int c = 0; c < outputs; c++)
                s[c] = round_slope(slope_of(m[c], target[i], table, f), weight[i], cap, f);
        } else {
            double largest = __dmul_rn(m[0], f.unit), total = 0.0;
            for (int c = 1; c < outputs; c++)
                largest = most(largest, __dmul_rn(m[c], f.unit));
            for (int c = 0; c < outputs; c++) {
                s[c] = interpolate(table, __dsub_rn(__dmul_rn(m[c], f.unit), largest), f);
                total = __dadd_rn(total, s[c]);
            }
            for (int c = 0; c < outputs; c++) {
                double odds = __ddiv_rn(s[c], total);
                double slope = __dsub_rn(odds, c == target[i] ? 1.0 : 0.0);
                s[c] = round_slope(slope, weight[i], cap, f);
            }
        }
        if (outputs > 1) {
            double end = least(cap, f.cap), squares = 0.0;
            for (int c = 0; c < outputs; c++)
                squares = __dadd_rn(squares, __dmul_rn(s[c], s[c]));
            if (squares > __dmul_rn(end, end)) {
                double factor = __ddiv_rn(end, __dsqrt_rn(most(squares, 1.0)));
                factor = __dmul_rn(factor, 1.0 - 0x1p-40);
                for (int c = 0; c < outputs; c++) s[c] = trunc(__dmul_rn(s[c], factor));
            }
        }
    }
}

// The cap of a row, from the squared norm of B x.
__device__ inline int cap_of(double squares, double reach, double shortest, double cap) {
    double norm = __dmul_rn(__dsqrt_rn(squares), 1.0 + 0x1p-40);
    return (int)least(floor(__ddiv_rn(reach, most(norm, shortest))), cap);
}

// Compute the cap of each row from its images[:, i] = B x_i.
extern "C" __global__ void cap_images(
    const double* images, int64 n, int height, double reach, double shortest, double cap,
    int* caps) {
    int64 stride = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        double squares = 0.0;
        for (int r = 0; r < height; r++) {
            double image = images[r * n + i];
            squares = __dadd_rn(squares, __dmul_rn(image, image));
        }
        caps[i] = cap_of(squares, reach, shortest, cap);
    }
}

// Where a coordinate is stored: a row of numbers (kind 0), a level of a row of one-byte
// codes (1) or of two-byte codes (2), the intercept (3), a knot of a row of positions
// (4), or a pair of knots of this row and the next (5). Others (6) are left alone.
struct Coordinate {
    int kind, row, level, next_level;
};

// The hat function of a knot at a position, both as skdp.schema.split_hats defines them.
__device__ inline int hat(unsigned int position, int knot) {
    int below = (int)(position >> 14), fraction = (int)(position & 16383);
    return below == knot ? 16384 - fraction : below + 1 == knot ? fraction : 0;
}

// Expand rows first, ..., first + n - 1 to block[j, i], in units of 2^-14.
extern "C" __global__ void expand(
    const short* numbers, const unsigned char* bytes, const unsigned short* shorts,
    const unsigned int* positions, int64 stride, int64 first, int64 n, const Coordinate* coordinates, int width,
    double* block) {
    int64 step = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        for (int j = 0; j < width; j++) {
            Coordinate c = coordinates[j];
            int64 at = c.row * stride + first + i;
            double value = 16384.0;
            if (c.kind == 0) value = numbers[at];
            if (c.kind == 1) value = bytes[at] == c.level ? 16384.0 : 0.0;
            if (c.kind == 2) value = shorts[at] == c.level ? 16384.0 : 0.0;
            if (c.kind == 4) value = hat(positions[at], c.level);
            if (c.kind == 5) {
                int next = hat(positions[at + stride], c.next_level);
                value = (hat(positions[at], c.level) * next) >> 14;
            }
            if (c.kind != 6) block[j * n + i] = value;
        }
    }
}

// Exact conversions that avoid the slow conversion instructions: an integer below 2^31
// in magnitude is placed in the low bits of a double, or is read from there.
__device__ inline double to_double(int value) {
    return __dsub_rn(__hiloint2double(0x43300000, value ^ 0x80000000), 4503601774854144.0);
}
__device__ inline int to_int(double value) {
    return __double2loint(__dadd_rn(value, 6755399441055744.0));
}

// The most columns of each kind that one sweep can read.
#define MOST_COLUMNS 48

// The columns that a sweep reads: their addresses, the change of each number's weight,
// and the first slot of each column of codes. The changes of the weights of codes are in
// slot_moves.
struct Columns {
    const short* number[MOST_COLUMNS];
    const unsigned char* byte[MOST_COLUMNS];
    const unsigned short* two[MOST_COLUMNS];
    double change[MOST_COLUMNS];
    int byte_slot[MOST_COLUMNS], short_slot[MOST_COLUMNS];
    const double* slot_moves;
    double intercept_move;
    int64 slots;
};

// Compute the cap of each row, as Metric.caps does.
//
// Line r of `lines` has the entries of line r of B for all numbers, for the intercept and
// for all slots. Those for the intercept and slots are already multiplied by 2^14.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) cap_rows(
    Columns columns, int64 n, const double* lines, int height, double reach,
    double shortest, double cap, int* caps) {
    int width = NUMBERS + 1 + (int)columns.slots;
    for (int e = threadIdx.x; e < height * width; e += blockDim.x) shared[e] = lines[e];
    __syncthreads();
    int64 step = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        double value[NUMBERS + 1], squares = 0.0;
        int slot[BYTES + SHORTS + 1];
#pragma unroll
        for (int j = 0; j < NUMBERS; j++) value[j] = to_double(columns.number[j][i]);
#pragma unroll
        for (int g = 0; g < BYTES; g++) slot[g] = columns.byte_slot[g] + columns.byte[g][i];
#pragma unroll
        for (int g = 0; g < SHORTS; g++)
            slot[BYTES + g] = columns.short_slot[g] + columns.two[g][i];
#pragma unroll 2
        for (int r = 0; r < height; r++) {
            const double* line = shared + r * width;
            double image = line[NUMBERS];
#pragma unroll
            for (int j = 0; j < NUMBERS; j++) image = fma(value[j], line[j], image);
#pragma unroll
            for (int g = 0; g < BYTES + SHORTS; g++) image += line[NUMBERS + 1 + slot[g]];
            squares = __dadd_rn(squares, __dmul_rn(image, image));
        }
        caps[i] = cap_of(squares, reach, shortest, cap);
    }
}

// Add up the products of each row's features.
//
// `sums` has the lower triangle of the products of numbers and of the intercept, which is
// the last one and counts as 1. Then it has a line for each slot: the sums of all numbers
// over the rows with this slot, and how many of these rows have each slot of an earlier
// column. The entry of the slot itself is the number of these rows.
//
// A thread's sum over numbers stays below 2^53, because it adds fewer than 2^23 products
// of at most 2^30. A sum over codes is 32 bits wide and is moved to `sums` after at most 2^15
// rows, whose numbers are below 2^15 in magnitude or equal to -2^15.
extern "C" __global__ void __launch_bounds__(THREADS, 1) add_up_pairs(
    Columns columns, int64 n, uint64* sums) {
    int width = NUMBERS + (int)columns.slots, entries = width * (int)columns.slots;
    int* counts = (int*)shared;
    for (int e = threadIdx.x; e < entries * COPIES; e += blockDim.x) counts[e] = 0;
    __syncthreads();

    double total[(NUMBERS + 1) * (NUMBERS + 2) / 2];
#pragma unroll
    for (int e = 0; e < (NUMBERS + 1) * (NUMBERS + 2) / 2; e++) total[e] = 0.0;

    int copy = threadIdx.x % COPIES;
    int turns = 0, most_turns = (1 << 15) / ((blockDim.x + COPIES - 1) / COPIES);
    int64 step = (int64)gridDim.x * blockDim.x;
    for (int64 base = (int64)blockIdx.x * blockDim.x; base < n; base += step) {
        int64 i = base + threadIdx.x;
        if (i < n) {
            int number[NUMBERS + 1], slot[BYTES + SHORTS + 1];
            double value[NUMBERS + 1];
#pragma unroll
            for (int j = 0; j < NUMBERS; j++) number[j] = columns.number[j][i];
#pragma unroll
            for (int g = 0; g < BYTES; g++)
                slot[g] = columns.byte_slot[g] + columns.byte[g][i];
#pragma unroll
            for (int g = 0; g < SHORTS; g++)
                slot[BYTES + g] = columns.short_slot[g] + columns.two[g][i];
#pragma unroll
            for (int j = 0; j < NUMBERS; j++) value[j] = to_double(number[j]);
            value[NUMBERS] = 1.0;
            int e = 0;
#pragma unroll
            for (int j = 0; j < NUMBERS + 1; j++)
#pragma unroll
                for (int h = 0; h <= j; h++, e++)
                    total[e] = fma(value[j], value[h], total[e]);
#pragma unroll
            for (int g = 0; g < BYTES + SHORTS; g++) {
                int* line = counts + slot[g] * width * COPIES + copy;
#pragma unroll
                for (int j = 0; j < NUMBERS; j++) atomicAdd(line + j * COPIES, number[j]);
#pragma unroll
                for (int h = 0; h <= g; h++)
                    atomicAdd(line + (NUMBERS + slot[h]) * COPIES, 1);
            }
        }
        turns++;
        if (BYTES + SHORTS > 0 && (turns == most_turns || base + step >= n)) {
            turns = 0;
            __syncthreads();
            for (int e = threadIdx.x; e < entries; e += blockDim.x) {
                int64 sum = 0;
                for (int k = 0; k < COPIES; k++) {
                    sum += counts[e * COPIES + k];
                    counts[e * COPIES + k] = 0;
                }
                if (sum) atomicAdd(sums + (NUMBERS + 1) * (NUMBERS + 2) / 2 + e, (uint64)sum);
            }
            __syncthreads();
        }
    }
#pragma unroll
    for (int e = 0; e < (NUMBERS + 1) * (NUMBERS + 2) / 2; e++) {
        int64 sum = (int64)total[e];
        for (int apart = 16; apart; apart /= 2)
            sum += __shfl_down_sync(0xffffffff, sum, apart);
        if (threadIdx.x % 32 == 0 && sum) atomicAdd(sums + e, (uint64)sum);
    }
}

// Update margins by the change of the weights, compute slopes and add up columns.
//
// sums has NUMBERS entries, one for the intercept, and one per slot. Each thread reads
// four rows at a time. Rows after the last one have weight 0, so their slope is 0.
//
// A thread's sum over numbers stays below 2^53, because it adds fewer than 2^22 products
// of a slope below 2^17 and a feature of at most 2^14. A sum over codes is 32 bits wide
// and is moved to `sums` after at most 2^14 rows, whose slopes are below 2^17.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) sweep(
    Columns columns, int64 quads, const unsigned short* target, const float* weight,
    const int* row_caps, double* margins, const double* global_table, Formula f,
    uint64* sums) {
    double* table = shared;
    int entries = FORMULA == MEAN || FORMULA == BENT_RESIDUAL ? (int)f.last + 1 : 0;
    double* moves = table + entries;
    int* counts = (int*)(moves + columns.slots);
    for (int e = threadIdx.x; e < entries; e += blockDim.x) table[e] = global_table[e];
    for (int e = threadIdx.x; e < columns.slots; e += blockDim.x)
        moves[e] = columns.slot_moves[e];
    for (int e = threadIdx.x; e < columns.slots * COPIES; e += blockDim.x) counts[e] = 0;
    __syncthreads();

    double total[NUMBERS + 1], intercept = 0.0;
#pragma unroll
    for (int j = 0; j < NUMBERS; j++) total[j] = 0.0;

    int copy = threadIdx.x % COPIES;
    int per_turn = 4 * ((blockDim.x + COPIES - 1) / COPIES);
    int turns = 0, most_turns = (1 << 14) / per_turn;
    int64 step = (int64)gridDim.x * blockDim.x;
    for (int64 base = (int64)blockIdx.x * blockDim.x; base < quads; base += step) {
        int64 q = base + threadIdx.x;
        if (q < quads) {
            short4 x[NUMBERS + 1];
            uchar4 b[BYTES + 1];
            ushort4 h[SHORTS + 1];
#pragma unroll
            for (int j = 0; j < NUMBERS; j++) x[j] = ((const short4*)columns.number[j])[q];
#pragma unroll
            for (int g = 0; g < BYTES; g++) b[g] = ((const uchar4*)columns.byte[g])[q];
#pragma unroll
            for (int g = 0; g < SHORTS; g++) h[g] = ((const ushort4*)columns.two[g])[q];
            ushort4 y = ((const ushort4*)target)[q];
            float4 w = ((const float4*)weight)[q];
            int4 c = make_int4(0, 0, 0, 0);
            if (row_caps) c = ((const int4*)row_caps)[q];
            double2 kept[2];
            if (KEPT) {
                kept[0] = ((const double2*)margins)[2 * q];
                kept[1] = ((const double2*)margins)[2 * q + 1];
            }
#pragma unroll
            for (int r = 0; r < 4; r++) {
                double value[NUMBERS + 1];
                double& own = r % 2 ? kept[r / 2].y : kept[r / 2].x;
                double m = columns.intercept_move + (KEPT ? own : 0.0);
#pragma unroll
                for (int j = 0; j < NUMBERS; j++) {
                    int v = r == 0 ? x[j].x : r == 1 ? x[j].y : r == 2 ? x[j].z : x[j].w;
                    value[j] = to_double(v);
                    m = fma(value[j], columns.change[j], m);
                }
                int slot[BYTES + SHORTS + 1];
#pragma unroll
                for (int g = 0; g < BYTES; g++) {
                    int v = r == 0 ? b[g].x : r == 1 ? b[g].y : r == 2 ? b[g].z : b[g].w;
                    slot[g] = columns.byte_slot[g] + v;
                    m += moves[slot[g]];
                }
#pragma unroll
                for (int g = 0; g < SHORTS; g++) {
                    int v = r == 0 ? h[g].x : r == 1 ? h[g].y : r == 2 ? h[g].z : h[g].w;
                    slot[BYTES + g] = columns.short_slot[g] + v;
                    m += moves[slot[BYTES + g]];
                }
                if (KEPT) own = m;
                int goal = r == 0 ? y.x : r == 1 ? y.y : r == 2 ? y.z : y.w;
                float heavy = r == 0 ? w.x : r == 1 ? w.y : r == 2 ? w.z : w.w;
                int end = r == 0 ? c.x : r == 1 ? c.y : r == 2 ? c.z : c.w;
                double cap = row_caps ? to_double(end) : f.cap;
                double s = slope_of(m, to_double(goal), table, f);
                s = round_slope(s, heavy, cap, f);
                intercept += s;
#pragma unroll
                for (int j = 0; j < NUMBERS; j++) total[j] = fma(value[j], s, total[j]);
                int units = to_int(s);
#pragma unroll
                for (int g = 0; g < BYTES + SHORTS; g++)
                    atomicAdd(counts + slot[g] * COPIES + copy, units);
            }
            if (KEPT) {
                ((double2*)margins)[2 * q] = kept[0];
                ((double2*)margins)[2 * q + 1] = kept[1];
            }
        }
        turns++;
        if (BYTES + SHORTS > 0 && (turns == most_turns || base + step >= quads)) {
            turns = 0;
            __syncthreads();
            for (int e = threadIdx.x; e < columns.slots; e += blockDim.x) {
                int64 sum = 0;
                for (int k = 0; k < COPIES; k++) {
                    sum += counts[e * COPIES + k];
                    counts[e * COPIES + k] = 0;
                }
                if (sum) atomicAdd(sums + NUMBERS + 1 + e, (uint64)sum);
            }
            __syncthreads();
        }
    }
#pragma unroll
    for (int j = 0; j < NUMBERS + 1; j++) {
        int64 sum = (int64)(j < NUMBERS ? total[j] : intercept);
        for (int apart = 16; apart; apart /= 2)
            sum += __shfl_down_sync(0xffffffff, sum, apart);
        if (threadIdx.x % 32 == 0 && sum) atomicAdd(sums + j, (uint64)sum);
    }
}
