// Feigned acceptance, in builds for measurements alone.
#include <turbo/kernel/gpu/chain.hpp>

using namespace turbo::gpu;

TB_KERNEL(simulated_accept, SimulatedAcceptArgs, 128) { simulated_accept_body(args); }
