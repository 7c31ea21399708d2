// POST /v1/completions: the request into a plan, and the answer's form.
#pragma once

#include "server/generation_request.h"

namespace turbo::server {

Checked<GenerationPlan> plan_completion(const Json& body, const Backend& backend, const ServerLimits& limits);

}  // namespace turbo::server
