<?php

declare(strict_types=1);

use Flowtrail\Api\EntriesApi;
use Flowtrail\Api\EventsApi;
use Flowtrail\ApiException;
use Flowtrail\Configuration;
use Flowtrail\Model\ContactIdentifier;
use Flowtrail\Model\CustomEventInput;
use Flowtrail\Model\ErrorBody;
use Flowtrail\ObjectSerializer;
use GuzzleHttp\Client;

require __DIR__ . '/generated/vendor/autoload.php';

ObjectSerializer::setDateTimeFormat(DATE_RFC3339_EXTENDED);
$http = new Client(['timeout' => 10]);
$configuration = (new Configuration())
    ->setHost(getenv('FLOWTRAIL_URL') ?: 'http://127.0.0.1:3000')
    ->setApiKey('X-Api-Key', getenv('FLOWTRAIL_KEY'));

// Every entry with its page views, page by page.
$entries = new EntriesApi($http, $configuration);
$cursor = null;
do {
    [$page, , $headers] = $entries->listEntryPageViewsWithHttpInfo('demo', limit: 100, cursor: $cursor);
    foreach ($page as $entry) {
        echo "{$entry->getEntryId()} {$entry->getCreatedAt()->format('Y-m-d')}\n";
    }
    $cursor = array_change_key_case($headers)['next-cursor'][0] ?? null;
} while ($cursor !== null);

// A custom event, recorded once however often this is sent.
$email = (new ContactIdentifier())->setKey('email')->setValue(json_encode('amara.okafor@example.com'));
$order = (new CustomEventInput())
    ->setModuleId('skin-quiz')
    ->setTimestamp(new DateTime('2026-03-01T09:41:12.345Z'))
    ->setCustomEventName('order_placed')
    ->setIdentifiers([$email]);
try {
    $result = (new EventsApi($http, $configuration))->recordCustomEvent('demo', $order, 'order-10042');
    echo $result->getEntryId(), "\n";
} catch (ApiException $exception) {
    $body = $exception->getResponseObject();
    if (!$body instanceof ErrorBody) {
        throw $exception;
    }
    echo $body->getError()->getCode(), ' ', implode("\n", $body->getError()->getDetails() ?? []), "\n";
}
