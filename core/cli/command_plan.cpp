// turbo plan and turbo plugins: what is installed, what a profile picks, and why the rest lost.
#include "cli/commands.h"
#include "loader/catalog.h"

namespace turbo::cli {

int run_plan(const Arguments& arguments) {
  int exit_code = kOk;
  const auto profile = load_profile(arguments, exit_code);
  if (!profile) return exit_code;
  engine::LoadStage stage = engine::LoadStage::model;
  engine::PlanReport losses;
  const Result<engine::PlanReport> plan = engine::plan(*profile, &stage, &losses);
  if (!plan) {
    if (!arguments.style.json) fmt::print("{}", losses.text);
    return fail(plan.status(), arguments, exit_code_of(plan.status(), stage));
  }
  if (arguments.style.json) print_json(plan->json);
  else fmt::print("{}", plan->text);
  return kOk;
}

int run_plugins(const Arguments& arguments) {
  int exit_code = kOk;
  const auto profile = load_profile(arguments, exit_code);
  if (!profile) return exit_code;
  const std::string what = arguments.positional.empty() ? "list" : arguments.positional[0];
  if ((what != "list" && what != "explain") || arguments.positional.size() > (what == "list" ? 1u : 2u))
    return fail(Status(Code::invalid_argument, "turbo plugins " + what + ": expected list, or explain with at most one plugin id",
                       "turbo plugins --help"), arguments, kUsage);
  loader::CatalogSettings settings = loader::CatalogSettings::of_this_process();
  settings.plugin_paths = profile->plugins.paths;
  settings.allow_unsafe = profile->plugins.allow_unsafe;
  Result<loader::Catalog> catalog = loader::Catalog::scan(std::move(settings));
  if (!catalog) return fail(catalog.status(), arguments, kUsage);
  if (what == "list") {
    if (arguments.style.json) print_json(catalog->list_json());
    else fmt::print("{}", catalog->list_text());
    return kOk;
  }
  const std::string id = arguments.positional.size() > 1 ? arguments.positional[1] : "";
  if (arguments.style.json) {
    const auto json = catalog->explain_json(id);
    if (!json) return fail(json.status(), arguments, kUsage);
    print_json(*json);
    return kOk;
  }
  const auto text = catalog->explain_text(id);
  if (!text) return fail(text.status(), arguments, kUsage);
  fmt::print("{}", *text);
  return kOk;
}

}  // namespace turbo::cli
