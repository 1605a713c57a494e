<?php

/** Runs the journey of ../journey.md with the client of openapi-generator (`-g php`). */

declare(strict_types=1);

use Flowtrail\Api\EntriesApi;
use Flowtrail\Api\ErasuresApi;
use Flowtrail\Api\EventsApi;
use Flowtrail\Api\ModulesApi;
use Flowtrail\ApiException;
use Flowtrail\Configuration;
use Flowtrail\Model\ContactIdentifier;
use Flowtrail\Model\CustomEventBatch;
use Flowtrail\Model\CustomEventBatchItem;
use Flowtrail\Model\CustomEventInput;
use Flowtrail\Model\EntryEvent;
use Flowtrail\Model\EntryPageViews;
use Flowtrail\Model\ErrorBody;
use Flowtrail\Model\ModuleVersionSummary;
use Flowtrail\Model\PageView;
use Flowtrail\Model\SortDirection;
use Flowtrail\ObjectSerializer;

require __DIR__ . '/generated/vendor/autoload.php';

// Every warning and deprecation ends the journey, in the generated code too.
error_reporting(E_ALL);
set_error_handler(static function (int $level, string $message, string $file, int $line): never {
    throw new ErrorException($message, 0, $level, $file, $line);
});
// By default the client truncates date-times to seconds.
ObjectSerializer::setDateTimeFormat(DATE_RFC3339_EXTENDED);

const PROJECT = 'demo';
const MODULE = 'skin-quiz';

/** Letters of several scripts, an emoji, and quotes: what a client may garble. */
const TEXT = 'Ärger À la carte 日本 🎉 say "hi"';

function setting(string $name): string
{
    return getenv($name) ?: throw new RuntimeException("{$name} is not set");
}

/** A configuration with the URL and key in the environment variables of these names. */
function connect(string $key, string $url = 'FLOWTRAIL_URL'): Configuration
{
    return (new Configuration())->setHost(setting($url))->setApiKey('X-Api-Key', setting($key));
}

function expect(bool $holds, mixed $instead): void
{
    $holds || throw new RuntimeException('not so: ' . print_r($instead, true));
}

function ok(string $step): void
{
    echo "ok {$step}\n";
}

/** Fails unless a text is JSON. */
function parse(string $json): void
{
    json_decode($json, flags: JSON_THROW_ON_ERROR);
}

/** The first value of a header of a response, which has them under the names as sent. */
function headerOf(array $headers, string $name): ?string
{
    return array_change_key_case($headers)[strtolower($name)][0] ?? null;
}

/** The exception that a call must raise. */
function refused(Closure $call): ApiException
{
    try {
        $answer = $call();
    } catch (ApiException $exception) {
        return $exception;
    }
    throw new RuntimeException('not refused, but ' . print_r($answer, true));
}

/** The typed error that a call must raise. */
function fault(int $status, string $code, Closure $call): ErrorBody
{
    $exception = refused($call);
    $body = $exception->getResponseObject();
    expect($body instanceof ErrorBody, $exception);
    $actual = [$exception->getCode(), $body->getError()->getCode(), $body->getProjectId()];
    expect($actual === [$status, $code, PROJECT], $actual);
    return $body;
}

function nextByCursor(array $headers): ?string
{
    return headerOf($headers, 'Next-Cursor');
}

/** The cursor in the URL of the next page, which otherwise equals that of this page. */
function nextByLink(array $headers): ?string
{
    $link = headerOf($headers, 'Link');
    if ($link === null) {
        return null;
    }
    expect(preg_match('/^<([^>]+)>; rel="next"$/D', $link, $match) === 1, $link);
    ['path' => $path, 'query' => $query] = parse_url($match[1]);
    parse_str($query, $parameters);
    expect([$path, $parameters['limit']] === ['/projects/' . PROJECT . '/entries-page-views', '50'], $link);
    return $parameters['cursor'];
}

/** The rows of a list, read page by page. */
function walk(Closure $pageAt, Closure $nextOf): array
{
    $rows = [];
    $cursor = null;
    do {
        [$page, , $headers] = $pageAt($cursor);
        array_push($rows, ...$page);
        $cursor = $nextOf($headers);
    } while ($cursor !== null);
    return $rows;
}

/** An identifier that no other contact has. */
function identifier(string $key, string $text = ''): ContactIdentifier
{
    $value = json_encode($text . bin2hex(random_bytes(16)), JSON_THROW_ON_ERROR);
    return (new ContactIdentifier())->setKey($key)->setValue($value);
}

/** A current custom event. Unlike the constructor, the setters check what they are given. */
function eventOf(ContactIdentifier ...$identifiers): CustomEventInput
{
    return (new CustomEventInput())
        ->setModuleId(MODULE)
        ->setTimestamp(new DateTime())
        ->setCustomEventName(TEXT)
        ->setCustomEventProps(json_encode(['by' => 'openapi-generator', 'said' => TEXT], JSON_THROW_ON_ERROR))
        ->setIdentifiers($identifiers);
}

$configuration = connect('FLOWTRAIL_KEY');
$modules = new ModulesApi(config: $configuration);
$entries = new EntriesApi(config: $configuration);
$events = new EventsApi(config: $configuration);

$listed = array_map(static fn ($module) => $module->getModuleId(), $modules->listModules(PROJECT));
expect(in_array(MODULE, $listed, true), $listed);
ok('list-modules');

[$module, , $headers] = $modules->getModuleWithHttpInfo(PROJECT, MODULE);
$etag = headerOf($headers, 'ETag');
parse($module->getJsonStringProd());
ok('get-module');

[$newest] = $modules->listModuleVersions(PROJECT, MODULE);
expect($newest instanceof ModuleVersionSummary, $newest);
ok('list-versions');

$version = $modules->getModuleVersion(PROJECT, MODULE, $newest->getVersionNumber());
parse($version->getJsonString());
expect($version->getSavedAt() == $newest->getSavedAt(), $version);
ok('get-version');

$byLink = walk(
    static fn ($cursor) => $entries->listEntryPageViewsWithHttpInfo(PROJECT, limit: 50, cursor: $cursor),
    nextByLink(...),
);
$byCursor = walk(
    static fn ($cursor) => $entries->listEntryPageViewsWithHttpInfo(
        PROJECT,
        limit: 30,
        direction: SortDirection::ASC,
        cursor: $cursor,
    ),
    nextByCursor(...),
);
$idOf = static fn (EntryPageViews $entry): string => $entry->getEntryId();
[$linked, $found] = [array_map($idOf, $byLink), array_map($idOf, $byCursor)];
expect(count($linked) >= 200 && count(array_unique($linked)) === count($linked), $linked);
expect(count($found) === count($linked) && array_diff($found, $linked) === [], $found);
$middle = $byCursor[150]->getUpdatedAt();
$since = static fn (DateTime|string $time): array => $entries->listEntryPageViews(
    PROJECT,
    limit: 1000,
    direction: SortDirection::ASC,
    updated_after: $time,
);
$later = array_values(array_filter($byCursor, static fn ($entry) => $entry->getUpdatedAt() >= $middle));
expect($since($middle->format(DATE_RFC3339_EXTENDED)) == $later, $middle);
try {
    $since($middle);
    throw new RuntimeException('a DateTime in a query is sent');
} catch (Error) {
    echo "-- page-through: a DateTime in a query is an Error; all else is done, with text\n";
}

$first = $byCursor[0];
$entry = $entries->getEntry(PROJECT, $first->getEntryId());
parse($entry->getEntryData());
$createdAt = $entry->getCreatedAt();
expect($createdAt instanceof DateTime && $createdAt == $first->getCreatedAt(), $entry);
expect($createdAt->getOffset() === 0, $entry);
ok('get-entry');

$eventsOf = static fn (string $entryId): array => walk(
    static fn ($cursor) => $entries->listEntryEventsWithHttpInfo(PROJECT, $entryId, limit: 2, cursor: $cursor),
    nextByCursor(...),
);
$timeOf = static fn (EntryEvent|PageView $view): DateTime => $view->getTimestamp();
$views = array_filter($eventsOf($first->getEntryId()), static fn ($event) => $event->getViewType() === 'flowpage');
expect(array_map($timeOf, array_reverse($views)) == array_map($timeOf, $first->getPageViews()), $views);
ok('list-events');

$taken = eventOf(identifier('email'), identifier(TEXT, TEXT));
$idempotencyKey = bin2hex(random_bytes(16));
$recorded = $events->recordCustomEvent(PROJECT, $taken, $idempotencyKey);
expect($recorded->getContactId() !== '', $recorded);
$format = 'U.v';
expect($recorded->getTimestamp()->format($format) === $taken->getTimestamp()->format($format), $recorded);
$found = $eventsOf($recorded->getEntryId());
expect(count($found) === 1 && $found[0]->getTimestamp() == $recorded->getTimestamp(), $found);
expect($found[0]->getCustomEventName() === TEXT, $found);
expect($found[0]->getCustomEventProps() === $taken->getCustomEventProps(), $found);
// The service understood the identifier as it was meant: it is the same contact's.
$again = $events->recordCustomEvent(PROJECT, eventOf($taken->getIdentifiers()[1]));
expect($again->getContactId() === $recorded->getContactId(), $again);
ok('record');

[$replayed, , $headers] = $events->recordCustomEventWithHttpInfo(PROJECT, $taken, $idempotencyKey);
expect($replayed == $recorded, $replayed);
expect(headerOf($headers, 'Idempotent-Replayed') === 'true', $headers);
ok('replay');

$itemOf = static fn (string $moduleId): CustomEventBatchItem => (new CustomEventBatchItem())
    ->setModuleId($moduleId)
    ->setTimestamp($taken->getTimestamp())
    ->setCustomEventName(TEXT)
    ->setIdentifiers($taken->getIdentifiers())
    ->setIdempotencyKey(bin2hex(random_bytes(16)));
$batch = (new CustomEventBatch())->setEvents([$itemOf(MODULE), $itemOf('hair-quiz')]);
$results = $events->recordCustomEvents(PROJECT, $batch)->getResults();
expect(count($results) === 2, $results);
[$accepted, $rejected] = $results;
expect([$accepted->getStatus(), $accepted->getReplayed()] === [200, false], $accepted);
expect($accepted->getEvent()->getCustomEventName() === TEXT, $accepted);
expect($accepted->getEvent()->getTimestamp() == $recorded->getTimestamp(), $accepted);
expect([$rejected->getStatus(), $rejected->getError()->getCode()] === [404, 'module_does_not_exist'], $rejected);
expect([$rejected->getProjectId(), $rejected->getModuleId()] === [PROJECT, 'hair-quiz'], $rejected);
[$repeated] = $events->recordCustomEvents(PROJECT, $batch)->getResults();
expect($repeated->getReplayed() && $repeated->getEvent() == $accepted->getEvent(), $repeated);
ok('record-batch');

[$before] = $events->listProjectEvents(PROJECT, limit: 1, direction: SortDirection::DESC);
$fresh = $events->recordCustomEvent(PROJECT, eventOf(identifier('email')));
[$page, , $headers] = $events->listProjectEventsWithHttpInfo(
    PROJECT,
    limit: 10,
    direction: SortDirection::ASC,
    after: $before->getPosition(),
    wait: 5,
);
expect(count($page) === 1 && $page[0]->getEventId() === $fresh->getEventId(), $page);
[$latest] = $page;
expect($latest->getPosition() > $before->getPosition(), $latest);
expect($latest->getRecordedAt() instanceof DateTime && $latest->getRecordedAt()->getOffset() === 0, $latest);
$cursor = nextByCursor($headers);
expect($cursor !== null && headerOf($headers, 'Link') === null, $headers);
$rest = $events->listProjectEvents(PROJECT, direction: SortDirection::ASC, cursor: $cursor);
expect($rest === [], $rest);
ok('follow-feed');

$erasures = new ErasuresApi(config: $configuration);
[$erasure] = $erasures->listErasures(PROJECT, limit: 1, direction: SortDirection::DESC);
expect($erasure->getContactId() !== '' && count(array_filter($erasure->getEntryIds())) === 2, $erasure);
expect($erasure->getErasedAt() instanceof DateTime && $erasure->getErasedAt()->getOffset() === 0, $erasure);
[$none, , $headers] = $erasures->listErasuresWithHttpInfo(
    PROJECT,
    direction: SortDirection::ASC,
    after: $erasure->getPosition(),
);
expect($none === [], $none);
expect(nextByCursor($headers) !== null && headerOf($headers, 'Link') === null, $headers);
ok('list-erasures');

$unchanged = refused(static fn () => $modules->getModule(PROJECT, MODULE, $etag));
expect($unchanged->getCode() === 304, $unchanged);
ok('conditional');

$invalid = fault(
    400,
    'invalid_request',
    static fn () => $entries->listEntryEvents(PROJECT, $first->getEntryId(), cursor: 'AWJ4'),
);
expect($invalid->getError()->getDetails()[0]->getPointer() === '/query/cursor', $invalid);
ok('error-400');

$stranger = new ModulesApi(config: connect('FLOWTRAIL_OTHER_KEY'));
fault(401, 'unauthorized', static fn () => $stranger->listModules(PROJECT));
ok('error-401');

$reader = new EventsApi(config: connect('FLOWTRAIL_READ_KEY'));
fault(403, 'insufficient_scope', static fn () => $reader->recordCustomEvent(PROJECT, $taken));
ok('error-403');

$unknown = fault(404, 'module_does_not_exist', static fn () => $modules->getModule(PROJECT, 'hair-quiz'));
expect($unknown->getModuleId() === 'hair-quiz', $unknown);
ok('error-404-module');

$unknown = fault(
    404,
    'module_version_does_not_exist',
    static fn () => $modules->getModuleVersion(PROJECT, MODULE, 99),
);
expect([$unknown->getModuleId(), $unknown->getVersionNumber()] === [MODULE, 99], $unknown);
ok('error-404-version');

$unknown = fault(404, 'entry_not_found', static fn () => $entries->getEntry(PROJECT, 'nobody'));
expect($unknown->getEntryId() === 'nobody', $unknown);
ok('error-404-entry');

[$mine, $yours] = [identifier('crm_id'), identifier('phone')];
foreach ([$mine, $yours] as $known) {
    $events->recordCustomEvent(PROJECT, eventOf($known));
}
fault(409, 'identifier_conflict', static fn () => $events->recordCustomEvent(PROJECT, eventOf($mine, $yours)));
ok('error-409');

$large = eventOf($mine);
$large['custom_event_name'] = str_repeat('x', 256 * 1024);
fault(413, 'payload_too_large', static fn () => $events->recordCustomEvent(PROJECT, $large));
ok('error-413');

$another = eventOf($mine);
fault(
    422,
    'idempotency_key_reused',
    static fn () => $events->recordCustomEvent(PROJECT, $another, $idempotencyKey),
);
ok('error-422');

$limited = new ModulesApi(config: connect('FLOWTRAIL_KEY', 'FLOWTRAIL_LIMITED_URL'));
try {
    $limited->listModules(PROJECT);
} catch (ApiException) {
    // An earlier journey may have used up the rate limit.
}
fault(429, 'rate_limited', static fn () => $limited->listModules(PROJECT));
$headers = refused(static fn () => $limited->listModules(PROJECT))->getResponseHeaders();
expect((int) headerOf($headers, 'Retry-After') > 0, $headers);
ok('error-429');
